"""LLM.embed, LLM.score and Engine.submit(output="embedding") over real checkpoints."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from embedding_folders import add_modules, change_config, reranker_folder, strip_to_body
from model_folders import golden_folder

import headrace
from headrace import (
    LLM,
    AsyncLLM,
    Engine,
    EngineError,
    GenerationConfig,
    HeadraceError,
    Pooling,
    PoolingParams,
    SamplingParams,
)
from headrace.packed import pack

GOLDEN = json.loads((ROOT / "tests/golden/embeddings.json").read_text())
POOLINGS = {"last": Pooling.LAST, "mean": Pooling.MEAN, "cls": Pooling.CLS}
OPTIONS: dict[str, Any] = {"kv_cache_bytes": 4 << 20, "max_model_len": 256, "num_threads": 1}


def cosine(a: list[float], b: list[float]) -> float:
    def dot(x: list[float], y: list[float]) -> float:
        return math.fsum(p * q for p, q in zip(x, y, strict=True))

    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["folder"])
def test_numbers_are_those_of_transformers(
    case: dict[str, Any], dtype: str, tmp_path: Path
) -> None:
    folder = golden_folder(case["folder"], tmp_path / "m")
    if not case["causal"]:
        change_config(folder, is_causal=False)
    options = headrace.ModelOptions(path=str(folder), dtype=dtype, kv_cache_bytes=4 << 20)
    with Engine() as engine:
        engine.install_model("m", options)
        engine.start_model("m")
        errors: list[float] = []
        for ids, expected in zip(case["prompts"], case["float32"], strict=True):
            for name, vector in expected.items():
                params = PoolingParams(normalize=False, logit_token_ids=GOLDEN["logit_ids"])
                if name != "logits":
                    params = PoolingParams(pooling=POOLINGS[name], normalize=False)
                found = engine.submit("m", ids, output=params).results().get()
                assert found.error_message == ""
                errors.append(1 - cosine(found.pooled, vector))
                if dtype == "float32":
                    assert found.pooled == pytest.approx(vector, rel=1e-3, abs=1e-4), name
    own = [1 - value for by_name in case["bfloat16_cosine"] for value in by_name.values()]
    if dtype == "float32":
        assert max(errors) < 1e-6
    else:  # as far from float32 as transformers is
        assert sum(errors) <= sum(own)
        assert max(errors) < 1e-3


def test_files_of_sentence_transformers_decide(tmp_path: Path) -> None:
    prompts = {"query": "Query: ", "document": ""}
    folder = add_modules(
        golden_folder("qwen3", tmp_path / "m"),
        "mean_tokens",
        (),
        prompts=prompts,
        default_prompt_name="document",
        truncate_dim=16,
    )
    with LLM(str(folder), **OPTIONS) as llm:
        plain, asked, by_text = (
            llm.embed("Hello", use_tqdm=False, **how)[0]
            for how in ({}, {"prompt_name": "query"}, {"prompt": "Query: "})
        )
        assert len(plain.outputs.embedding) == 16
        assert asked.prompt_token_ids == by_text.prompt_token_ids
        assert asked.prompt_token_ids[-5:] == plain.prompt_token_ids
        assert asked.outputs == by_text.outputs
        whole = llm.embed("Hello", dimensions=64, use_tqdm=False)[0].outputs.embedding
        assert whole[:16] == plain.outputs.embedding  # nothing is normalised
        assert abs(cosine(whole, whole) - 1) < 1e-9
        unit = llm.embed("Hello", normalize=True, use_tqdm=False)[0].outputs.embedding
        assert math.fsum(x * x for x in unit) == pytest.approx(1, abs=1e-6)
        with pytest.raises(ValueError, match="document, query"):
            llm.embed("Hello", prompt_name="quary")
        with pytest.raises(ValueError, match="before texts"):
            llm.embed([[1, 2]], prompt_name="query")
        with pytest.raises(ValueError, match="either"):
            llm.embed("Hello", prompt_name="query", prompt="x")


@pytest.mark.parametrize(
    ("mode", "kinds", "config", "message"),
    [
        ("max_tokens", (), {}, "max_tokens"),
        ("none", (), {}, "none"),
        ("lasttoken", ("LayerNorm",), {}, "'LayerNorm'"),
        ("lasttoken", ("Normalize", "Normalize"), {}, "in this order"),
        ("lasttoken", (), {"truncate_dim": 0}, "truncate_dim"),
        ("lasttoken", (), {"truncate_dim": 10_000}, "10000"),
        ("lasttoken", (), {"prompts": ["query"]}, "prompts"),
        ("lasttoken", (), {"default_prompt_name": "q"}, "default_prompt_name"),
    ],
)
def test_files_that_cannot_be_gone_by(
    mode: str, kinds: tuple[str, ...], config: Any, message: str, tmp_path: Path
) -> None:
    folder = add_modules(golden_folder("qwen3", tmp_path / "m"), mode, kinds, **config)
    with LLM(str(folder), **OPTIONS) as llm:
        with pytest.raises(ValueError, match=message):
            llm.embed("Hello")
        # It goes on generating.
        assert llm.generate("Hello", SamplingParams(max_tokens=1), use_tqdm=False)


def test_a_path_that_leads_out_of_the_folder(tmp_path: Path) -> None:
    folder = add_modules(golden_folder("qwen3", tmp_path / "m"))
    text = (folder / "modules.json").read_text()
    (folder / "modules.json").write_text(text.replace("1_Pooling", "../1_Pooling"))
    with LLM(str(folder), **OPTIONS) as llm, pytest.raises(ValueError, match="out of the folder"):
        llm.embed("Hello")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"do_lower_case": True}, "do_lower_case"),
        ({"modality_config": {"message": {}}}, "template"),
    ],
)
def test_texts_that_are_to_be_changed_first(
    config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = add_modules(golden_folder("qwen3", tmp_path / "m"))
    (folder / "sentence_bert_config.json").write_text(json.dumps(config))
    with LLM(str(folder), **OPTIONS) as llm, pytest.raises(ValueError, match=message):
        llm.embed("Hello")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    with LLM(str(folder), **OPTIONS) as llm:
        assert "5 tokens" in str(llm.embed("Hello", use_tqdm=False)[0].error_msg)


def test_bad_inputs_fail_alone(tmp_path: Path) -> None:
    folder = golden_folder("qwen3", tmp_path / "m")
    with LLM(str(folder), **OPTIONS) as llm:
        inputs = ["Hello", "", "x" * 300, "", [5, 6]]
        good, empty, long, _, ids = llm.embed(inputs, use_tqdm=False)  # type: ignore[arg-type]
        assert good.error_code == ids.error_code == 200
        assert (empty.error_code, empty.outputs.embedding) == (400, [])
        assert "300 tokens" in str(long.error_msg)
        assert "outside the vocabulary" in str(llm.embed([[999]], use_tqdm=False)[0].error_msg)
        for dimensions in (0, -1, 65, 10**9):
            with pytest.raises(ValueError, match="dimensions"):
                llm.embed("Hello", dimensions=dimensions)
        for dimensions in (True, "8", 1.5, float("nan"), [8]):
            with pytest.raises(TypeError, match="dimensions must be an int, got"):
                llm.embed("Hello", dimensions=dimensions)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="prompt_token_ids"):
            llm.embed({"prompt_token_ids": "Hello"})
        with pytest.raises(ValueError, match=r"prompt_name \['a'\]"):
            llm.embed("Hello", prompt_name=["a"])  # type: ignore[arg-type]
        huge = llm.embed([[10**30]], use_tqdm=False)[0]
        assert huge.error_msg == f"prompt_token_ids has {10**30}, which is no token id"
        with pytest.raises(ValueError, match="bad_words"):
            llm.embed({"prompt": "Hello", "bad_words": ["a"]})
        with pytest.raises(TypeError):
            llm.embed("Hello", SamplingParams())  # type: ignore[misc]
        whole = llm.embed([[7] * 256], use_tqdm=False)[0]
        assert whole.error_code == 200
    with pytest.raises(RuntimeError, match="closed"):
        llm.embed("Hello")
    raising = LLM(str(folder), raise_on_error=True, **OPTIONS)
    with raising, pytest.raises(EngineError, match="empty"):
        raising.embed("")


def test_prefixes_are_shared_and_bits_stay(tmp_path: Path) -> None:
    folder = golden_folder("qwen3", tmp_path / "m")
    texts = ["The same long beginning of a hundred texts, " * 4 + str(i) for i in range(8)]
    with LLM(str(folder), **{**OPTIONS, "num_threads": 2}) as llm:
        alone = [llm.embed(text, use_tqdm=False)[0].outputs for text in texts]
        llm.clear_prefix_cache()
        together = llm.embed(texts, use_tqdm=False)
        assert [output.outputs for output in together] == alone
        assert sum(output.num_cached_tokens for output in together) >= 7 * 128
    with LLM(str(folder), max_num_batched_tokens=16, max_num_seqs=4, **OPTIONS) as llm:
        again = llm.embed(texts, use_tqdm=False)
        assert [output.outputs for output in again] == alone


def test_a_checkpoint_of_the_body_alone(tmp_path: Path) -> None:
    whole = golden_folder("llama_bf16", tmp_path / "whole")
    body = strip_to_body(golden_folder("llama_bf16", tmp_path / "body"))
    assert not json.loads((body / "config.json").read_text()).get("tie_word_embeddings")
    with LLM(str(whole), **OPTIONS) as llm:
        expected = llm.embed("Hello", use_tqdm=False)[0].outputs
    packed = str(tmp_path / "packed.headrace")
    pack(str(body), packed)
    for weights in (None, packed):
        with LLM(str(body), packed_weights=weights, **OPTIONS) as llm:
            assert not llm.model_info.generates
            assert llm.embed("Hello", use_tqdm=False)[0].outputs == expected
            failed = llm.generate("Hello", use_tqdm=False)[0]
            assert "no head" in str(failed.error_msg)
            score = llm.score("a", ["a", "b"], use_tqdm=False)  # by embeddings
            assert score[0].outputs.score == pytest.approx(1)


def test_a_bidirectional_model(tmp_path: Path) -> None:
    folder = golden_folder("qwen2", tmp_path / "m")
    code = {"AutoModel": "Alibaba-NLP/gte--modeling_qwen.Qwen2Model"}
    for keys, causal in (({"auto_map": code}, False), ({"is_causal": True}, True)):
        change_config(folder, **keys)
        assert headrace.native.describe_model(folder).causal is causal  # type: ignore[attr-defined]
    change_config(folder, is_causal=False)
    with LLM(str(folder), max_num_batched_tokens=64, **OPTIONS) as llm:
        good, long = llm.embed(["Hello", "x" * 65], use_tqdm=False)
        assert good.error_code == 200
        assert "max_num_batched_tokens 64" in str(long.error_msg)
        assert "bidirectional" in str(llm.generate("Hello", use_tqdm=False)[0].error_msg)
    change_config(folder, use_sliding_window=True, max_window_layers=1)
    with pytest.raises(HeadraceError, match="is_causal"):
        LLM(str(folder), **OPTIONS)


def test_reranking_is_the_probability_of_yes(tmp_path: Path) -> None:
    folder = reranker_folder(tmp_path / "m")
    options = {**OPTIONS, "max_model_len": 512, "dtype": "float32"}
    documents = ["Paris is the capital.", "Fish swim."]
    with LLM(str(folder), enable_logprob=True, max_logprobs=-1, **options) as llm:
        scores = llm.score("Capital of France?", documents, use_tqdm=False)
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        yes, no = (tokenizer.encode(word)[0] for word in ("yes", "no"))
        for output, document in zip(scores, documents, strict=True):
            text = tokenizer.decode(output.prompt_token_ids)
            assert text.endswith(
                f"<Query>: Capital of France?\n<Document>: {document}<|im_end|>\n"
                "<|im_start|>assistant\n<think>\n\n</think>\n\n"
            )
            params = SamplingParams(max_tokens=1, logprobs=-1)
            drawn = llm.generate([output.prompt_token_ids], params, use_tqdm=False)[0]
            (first,) = drawn.outputs.logprobs or []
            weights = [math.exp(first[token].logprob) for token in (yes, no)]
            assert output.outputs.score == pytest.approx(weights[0] / sum(weights), abs=1e-5)
        other = llm.score("Capital of France?", documents[0], instruction="Be kind")
        assert "<Instruct>: Be kind" in tokenizer.decode(other[0].prompt_token_ids)
        with pytest.raises(ValueError, match="2 queries for 1"):
            llm.score(["a", "b"], ["c"])
        for documents in (None, 5, b"a", {"text": "a"}, [1]):
            with pytest.raises(TypeError, match="must be texts, got"):
                llm.score("a", documents)  # type: ignore[arg-type]


def test_scores_of_embeddings_are_cosines(tmp_path: Path) -> None:
    prompts = {"query": "Query: ", "passage": "Text: "}
    folder = add_modules(golden_folder("qwen3", tmp_path / "m"), prompts=prompts)
    with LLM(str(folder), **OPTIONS) as llm:
        query = llm.embed("One", prompt_name="query", use_tqdm=False)[0].outputs.embedding
        texts = llm.embed(["Two", "Three"], prompt_name="passage", use_tqdm=False)
        scores = llm.score("One", ["Two", "Three"], use_tqdm=False)
        for score, text in zip(scores, texts, strict=True):
            assert score.outputs.score == pytest.approx(cosine(query, text.outputs.embedding))
        with pytest.raises(ValueError, match="rerankers"):
            llm.score("One", "Two", instruction="x")
    same = add_modules(golden_folder("qwen3", tmp_path / "same"))
    with LLM(str(same), **OPTIONS) as llm:  # rounded to float32, some are longer than 1
        texts = [f"t{i}" for i in range(20)]
        scores = [one.outputs.score for one in llm.score(texts, texts, use_tqdm=False)]
        assert scores == pytest.approx([1.0] * 20, abs=1e-6)
        assert max(scores) <= 1
    other = LLM(str(golden_folder("qwen3", tmp_path / "n")), **OPTIONS)
    with other, pytest.raises(ValueError, match="no reranker"):
        other.score("One", "Two")


def test_coroutines_give_the_same(tmp_path: Path) -> None:
    folder = golden_folder("qwen3", tmp_path / "m")
    texts = [f"text {i}" for i in range(20)]
    with LLM(str(folder), **OPTIONS) as llm:
        expected = [output.outputs for output in llm.embed(texts, use_tqdm=False)]

    async def run() -> None:
        async with AsyncLLM.load(str(folder), **OPTIONS) as llm:
            halves = await asyncio.gather(llm.embed(texts[:9]), llm.embed(texts[9:]))
            assert [output.outputs for half in halves for output in half] == expected
            task = asyncio.ensure_future(llm.embed([[5] * 250] * 60))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert llm.request_ids() == []
            assert (await llm.embed(""))[0].error_code == 400

    asyncio.run(run())


def test_a_call_that_ends_while_a_text_is_read_leaves_nothing(tmp_path: Path) -> None:
    folder = golden_folder("qwen3", tmp_path / "m")
    reads, goes_on, both = threading.Event(), threading.Event(), threading.Barrier(2)

    async def run() -> None:
        async with AsyncLLM.load(str(folder), **OPTIONS) as llm:
            tokenizer = llm.get_tokenizer()
            assert tokenizer is not None

            def encode(_: object, text: str, *args: Any, **options: Any) -> list[int]:
                reads.set()
                assert goes_on.wait(30)
                if text != "Hello":
                    both.wait(30)
                return [5] * 250

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(tokenizer), "encode", encode)
                task = asyncio.ensure_future(llm.embed("Hello"))
                await asyncio.to_thread(reads.wait, 30)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                goes_on.set()
                # Two threads read texts: once both read one of these, what they had is done.
                await asyncio.gather(llm.embed("a"), llm.embed("b"))
            assert llm.request_ids() == []
            assert llm.stats().finished_requests == 2

    asyncio.run(run())


def test_a_packed_folder_keeps_what_embeddings_are_made_by(tmp_path: Path) -> None:
    folder = add_modules(golden_folder("qwen3", tmp_path / "m"), "cls_token", truncate_dim=4)
    pack(str(folder), str(tmp_path / "packed"))
    found = []
    for path in (folder, tmp_path / "packed"):
        with LLM(str(path), **OPTIONS) as llm:
            found.append(llm.embed("Hello", use_tqdm=False)[0].outputs.embedding)
    assert found[0] == found[1]
    assert len(found[0]) == 4


def test_logits_need_a_head(tmp_path: Path) -> None:
    folder = strip_to_body(golden_folder("llama_bf16", tmp_path / "m"))
    with Engine() as engine:
        engine.install_model("m", headrace.ModelOptions(path=str(folder), kv_cache_bytes=4 << 20))
        engine.start_model("m")
        params = PoolingParams(normalize=False, logit_token_ids=[3])
        with pytest.raises(HeadraceError, match="no head"):
            engine.submit("m", [5], output=params)


def test_engine_submit(tmp_path: Path) -> None:
    folder = add_modules(golden_folder("qwen3", tmp_path / "m"), "cls_token")
    with Engine() as engine:
        engine.install_model("m", headrace.ModelOptions(path=str(folder), kv_cache_bytes=4 << 20))
        engine.start_model("m")
        output = engine.submit("m", "Hello", output="embedding").results().get()
        assert output.finished
        assert output.finish_reason == headrace.FinishReason.STOP
        assert math.fsum(x * x for x in output.pooled) == pytest.approx(1, abs=1e-6)
        first = PoolingParams(pooling=Pooling.CLS)
        assert engine.submit("m", "Hello", output=first).results().get().pooled == output.pooled
        for name, value in (("config", GenerationConfig()), ("stop", "x"), ("detokenize", True)):
            with pytest.raises(ValueError, match=f"{name} is for text"):
                engine.submit("m", "Hello", output="embedding", **{name: value})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="'tokens'"):
            engine.submit("m", "Hello", output="tokens")  # type: ignore[arg-type]

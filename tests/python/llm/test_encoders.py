"""LLM.embed and LLM.score over encoders, and what Engine gives of them."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_folders import write_adapter, write_safetensors
from conftest import ROOT
from embedding_folders import add_modules, change_config
from encoder_folders import ENCODERS, encoder_folder, encoder_golden, unigram, wordpiece
from model_folders import golden_folder
from tokenizers import Tokenizer, processors

from headrace import (
    LLM,
    Engine,
    HeadraceError,
    LoRARequest,
    ModelOptions,
    Pooling,
    PoolingParams,
)
from headrace.packed import pack
from headrace.text.tokenizer import load_tokenizer

sys.path.append(str(ROOT / "tests/golden"))
from load import read_safetensors

NAMES = sorted(path.name for path in ENCODERS.iterdir())
OPTIONS: dict[str, Any] = {"kv_cache_bytes": 4 << 20, "num_threads": 1}
QUERY = "What is it?"
DOCUMENTS = ["Paris.", "A fish, swimming far away.", "?"]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    golden: Any = encoder_golden(name)
    arrays = read_safetensors(ENCODERS / name / "golden.safetensors")
    folder = encoder_folder(name, tmp_path / "m")
    options = ModelOptions(path=str(folder), dtype="float32", kv_cache_bytes=4 << 20)
    with Engine() as engine:
        engine.install_model("m", options)
        engine.start_model("m")
        info = engine.model_info("m")
        assert not info.causal
        assert not info.generates
        for index, prompt in enumerate(golden["prompts"]):
            rows = arrays[f"rows.{index}"]
            given: dict[str, Any] = {"normalize": False, "second_text_at": prompt["second_text_at"]}
            asked = [
                (PoolingParams(pooling=Pooling.CLS, **given), rows[0], "rows"),
                (PoolingParams(pooling=Pooling.MEAN, **given), rows.mean(0), "rows"),
            ]
            if info.head_outputs:
                pooling = info.classifier_pooling if info.classifies else Pooling.MEAN
                head = PoolingParams(pooling=pooling, use_head=True, **given)
                asked.append((head, arrays[f"head.{index}"], "head"))
            for params, expected, part in asked:
                found = engine.submit("m", prompt["prompt"], output=params).results().get()
                assert found.error_message == ""
                tolerance = golden["tolerance"][part] + 1e-7
                assert found.pooled == pytest.approx(expected.tolist(), rel=0, abs=tolerance)


def test_pairs_are_scored_by_their_label(tmp_path: Path) -> None:
    folder = encoder_folder("bert_classifier", tmp_path / "m")
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    with LLM(str(folder), dtype="float32", **OPTIONS) as llm:
        scores = llm.score(QUERY, DOCUMENTS, use_tqdm=False)
        for output, document in zip(scores, DOCUMENTS, strict=True):
            encoding = reference.encode(QUERY, document)
            assert output.prompt_token_ids == encoding.ids
            assert 0 < output.outputs.score < 1
        alone = [llm.score(QUERY, document, use_tqdm=False)[0].outputs for document in DOCUMENTS]
        assert [output.outputs for output in scores] == alone
        assert len({output.outputs.score for output in scores}) == len(DOCUMENTS)
        with pytest.raises(ValueError, match="Qwen3's form"):
            llm.score(QUERY, DOCUMENTS, instruction="x")
        assert "bidirectional" in str(llm.generate("Hello", use_tqdm=False)[0].error_msg)
        cut = llm.score(QUERY, "a " * 50, truncate_prompt_tokens=20, use_tqdm=False)[0]
        assert cut.prompt_token_ids[:-1] == reference.encode(QUERY, "a " * 50).ids[:19]
        assert cut.prompt_token_ids[-1] == 3
        assert cut.error_code == 200
        hopeless = llm.score("a " * 30, "b", truncate_prompt_tokens=20, use_tqdm=False)[0]
        assert "too few" in str(hopeless.error_msg)
        long = llm.score(QUERY, "a " * 200, use_tqdm=False)[0]
        assert "more than the model's 140" in str(long.error_msg)

    # The label's logit, as sentence-transformers has it with this setting.
    setting = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0"}
    change_config(folder, sentence_transformers=setting)
    with LLM(str(folder), dtype="float32", **OPTIONS) as llm:
        for raw, output in zip(llm.score(QUERY, DOCUMENTS, use_tqdm=False), scores, strict=True):
            sigmoid = 1 / (1 + math.exp(-raw.outputs.score))
            assert sigmoid == pytest.approx(output.outputs.score, abs=1e-6)
    change_config(folder, sentence_transformers={"activation_fn": "torch.nn.Softplus"})
    with LLM(str(folder), **OPTIONS) as llm, pytest.raises(ValueError, match="Softplus"):
        llm.score(QUERY, DOCUMENTS)


def test_what_the_second_text_is_matters(tmp_path: Path) -> None:
    folder = encoder_folder("bert_classifier", tmp_path / "m")
    with LLM(str(folder), dtype="float32", **OPTIONS) as llm:
        (output,) = llm.score(QUERY, DOCUMENTS[0], use_tqdm=False)
    ids = output.prompt_token_ids
    with Engine() as engine:
        engine.install_model("m", ModelOptions(path=str(folder), dtype="float32"))
        engine.start_model("m")

        def logit(second: int) -> float:
            params = PoolingParams(
                pooling=Pooling.CLS, normalize=False, use_head=True, second_text_at=second
            )
            return float(engine.submit("m", ids, output=params).results().get().pooled[0])

        assert 1 / (1 + math.exp(-logit(ids.index(3) + 1))) == pytest.approx(output.outputs.score)
        assert logit(0) != logit(ids.index(3) + 1)
        for second in (-1, len(ids)):
            with pytest.raises(HeadraceError, match="second_text_at"):
                logit(second)


def test_other_models_have_neither_head_nor_pairs(tmp_path: Path) -> None:
    folder = golden_folder("qwen3", tmp_path / "m")
    with Engine() as engine:
        engine.install_model("m", str(folder))
        engine.start_model("m")
        for wrong in ({"use_head": True}, {"second_text_at": 1}):
            params = PoolingParams(**wrong)
            with pytest.raises(HeadraceError, match=next(iter(wrong))):
                engine.submit("m", [5, 6], output=params)


def test_several_labels_make_no_score(tmp_path: Path) -> None:
    folder = encoder_folder("xlm_roberta_classifier", tmp_path / "m", unigram())
    with LLM(str(folder), **OPTIONS) as llm, pytest.raises(ValueError, match="3 labels"):
        llm.score(QUERY, DOCUMENTS)


def test_embeddings_are_pooled_as_the_files_say(tmp_path: Path) -> None:
    folder = encoder_folder("bert", tmp_path / "m")
    with LLM(str(folder), **OPTIONS) as llm:
        first = llm.embed(DOCUMENTS, use_tqdm=False)
        assert [output.prompt_token_ids[0] for output in first] == [2] * 3
        assert math.fsum(x * x for x in first[0].outputs.embedding) == pytest.approx(1, abs=1e-6)
    for mode, pooling in (("cls_token", Pooling.CLS), ("mean_tokens", Pooling.MEAN)):
        add_modules(folder, mode)
        with LLM(str(folder), **OPTIONS) as llm, Engine() as engine:
            engine.install_model("m", str(folder))
            engine.start_model("m")
            for output in llm.embed(DOCUMENTS, use_tqdm=False):
                ids = output.prompt_token_ids
                params = PoolingParams(pooling=pooling)
                own = engine.submit("m", ids, output=params).results().get().pooled
                assert own == output.outputs.embedding
            scores = llm.score(QUERY, [QUERY, *DOCUMENTS], use_tqdm=False)
            assert scores[0].outputs.score == pytest.approx(1, abs=1e-6)
            if mode == "cls_token":
                same = [output.outputs for output in llm.embed(DOCUMENTS, use_tqdm=False)]
                assert same == [output.outputs for output in first]


def test_dense_modules_come_behind_the_mean(tmp_path: Path) -> None:
    golden: Any = encoder_golden("embedding_gemma")
    arrays = read_safetensors(ENCODERS / "embedding_gemma" / "golden.safetensors")
    folder = encoder_folder("embedding_gemma", tmp_path / "m")
    packed = str(tmp_path / "packed.headrace")
    pack(str(folder), packed, dtype="float32")
    for weights in (None, packed):
        with LLM(str(folder), dtype="float32", packed_weights=weights, **OPTIONS) as llm:
            assert llm.model_info.head_outputs == 40
            ids = [prompt["prompt"] for prompt in golden["prompts"]]
            for index, output in enumerate(llm.embed(ids, use_tqdm=False)):
                head = arrays[f"head.{index}"].astype("float64")
                unit = (head / math.sqrt(float((head * head).sum()))).tolist()
                assert output.outputs.embedding == pytest.approx(unit, rel=0, abs=1e-5)
            short = llm.embed(ids[1:2], dimensions=8, use_tqdm=False)[0].outputs.embedding
            assert len(short) == 8
            with pytest.raises(ValueError, match="have 40 numbers"):
                llm.embed(ids, dimensions=41)
    config = json.loads((folder / "2_Dense" / "config.json").read_text())
    for change, message in (
        ({"activation_function": "torch.nn.Mish"}, "Mish"),
        ({"out_features": 0}, "out_features"),
        ({"out_features": 95}, "2_Dense/linear.weight"),
    ):
        (folder / "2_Dense" / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(HeadraceError, match=message):
            LLM(str(folder), **OPTIONS)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("bert", {"hidden_act": "relu6"}, "hidden_act"),
        ("bert", {"is_decoder": True}, "is_decoder"),
        ("bert", {"is_causal": True}, "is_causal"),
        ("bert", {"type_vocab_size": 0}, "type_vocab_size"),
        ("bert", {"type_vocab_size": 3}, "token_type_embeddings"),
        ("bert", {"max_position_embeddings": 141}, "position_embeddings"),
        ("bert", {"architectures": ["BertForTokenClassification"]}, "architectures"),
        ("bert_classifier", {"id2label": {}}, "id2label"),
        ("roberta", {"pad_token_id": 139}, "max_position_embeddings"),
        ("modernbert", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling"),
        ("modernbert", {"local_attention": 0}, "local_attention"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
        ("modernbert_classifier", {"classifier_pooling": "max"}, "classifier_pooling"),
    ],
)
def test_configs_that_mean_something_else(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = change_config(encoder_folder(name, tmp_path / "m"), **change)
    with pytest.raises(HeadraceError, match=message):
        LLM(str(folder), **OPTIONS)


def test_positions_end_where_the_table_does(tmp_path: Path) -> None:
    folder = encoder_folder("roberta", tmp_path / "m")
    with pytest.raises(HeadraceError, match="135 positions"):
        LLM(str(folder), max_model_len=136, **OPTIONS)
    with LLM(str(folder), **OPTIONS) as llm:
        good, long = llm.embed([[7] * 135, [7] * 136], use_tqdm=False)
        assert good.error_code == 200
        assert "more than the model's 135" in str(long.error_msg)


@pytest.mark.parametrize("name", ["bert", "modernbert", "embedding_gemma"])
def test_bits_do_not_depend_on_company(name: str, tmp_path: Path) -> None:
    folder = encoder_folder(name, tmp_path / "m")
    texts = [("word " * (1 + 7 * i % 23)).strip() for i in range(24)]
    found = []
    for options in ({"max_num_seqs": 1}, {"num_threads": 3, "block_size": 64}):
        with LLM(str(folder), **{**OPTIONS, "max_num_batched_tokens": 160, **options}) as llm:
            found.append([output.outputs for output in llm.embed(texts, use_tqdm=False)])
    assert found[0] == found[1]
    with LLM(str(folder), quantization="wint8", **OPTIONS) as llm:
        near = llm.embed(texts, use_tqdm=False)
    for output, exact in zip(near, found[0], strict=True):
        pairs = zip(output.outputs.embedding, exact.embedding, strict=True)
        assert math.fsum(a * b for a, b in pairs) > 0.99


def adapted_folders(name: str, targets: tuple[str, ...], tmp_path: Path) -> tuple[Path, Path, Path]:
    """A model, an adapter of its linears with these endings, and the model with it merged."""
    folder = encoder_folder(name, tmp_path / "m")
    merged = encoder_folder(name, tmp_path / "merged")
    weights = read_safetensors(folder / "model.safetensors")
    random = np.random.default_rng(1)
    halves = {}
    for tensor, weight in weights.items():
        path = tensor.removesuffix(".weight")
        if "layer" not in path or not path.endswith(targets):
            continue
        a = random.uniform(-0.2, 0.2, (4, weight.shape[1])).astype("f4")
        b = random.uniform(-0.2, 0.2, (weight.shape[0], 4)).astype("f4")
        halves[path] = (a, b)
        weights[tensor] = weight + b.astype("f8") @ a.astype("f8")
    write_safetensors(merged / "model.safetensors", weights)
    return folder, write_adapter(tmp_path / "lora", halves, targets, "FEATURE_EXTRACTION"), merged


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("bert", ("query", "value", "intermediate.dense", "output.dense")),
        ("modernbert", ("Wqkv", "Wo", "Wi")),
    ],
)
def test_adapters_give_the_embeddings_of_merged_weights(
    name: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    folder, adapter, merged = adapted_folders(name, targets, tmp_path)
    # Two float32 runs, twice the tolerance of one: lora_decoder_test.cc.
    golden: Any = encoder_golden(name)
    tolerance = 2 * golden["tolerance"]["rows"]
    asked: dict[str, Any] = {"normalize": False, "use_tqdm": False}
    lora = LoRARequest("a", 1, str(adapter))
    with (
        LLM(str(folder), dtype="float32", enable_lora=True, **OPTIONS) as llm,
        LLM(str(merged), dtype="float32", **OPTIONS) as other,
    ):
        found = llm.embed(DOCUMENTS, lora_request=lora, **asked)
        plain = llm.embed(DOCUMENTS, **asked)
        for output, base, expected in zip(
            found, plain, other.embed(DOCUMENTS, **asked), strict=True
        ):
            wanted = np.array(expected.outputs.embedding)
            assert np.abs(output.outputs.embedding - wanted).max() <= tolerance
            assert np.abs(base.outputs.embedding - wanted).max() > 20 * tolerance
        for document, output in zip(DOCUMENTS, found, strict=True):
            (alone,) = llm.embed(document, lora_request=lora, **asked)
            assert alone.outputs == output.outputs
    with Engine() as engine:
        options = ModelOptions(path=str(folder), dtype="float32", max_loras=1)
        engine.install_model("m", options)
        engine.start_model("m")
        engine.load_lora("m", "a", str(adapter))
        params = PoolingParams(pooling=Pooling.CLS, normalize=False)
        mixed = [
            (engine.submit("m", output.prompt_token_ids, output=params, lora=used), output)
            for pair in zip(found, plain, strict=True)
            for used, output in zip(("a", ""), pair, strict=True)
        ]
        for request, output in mixed:
            assert request.results().get().pooled == output.outputs.embedding


def test_adapters_give_the_scores_of_merged_weights(tmp_path: Path) -> None:
    folder, adapter, merged = adapted_folders("bert_classifier", ("query", "value"), tmp_path)
    golden: Any = encoder_golden("bert_classifier")
    tolerance = 2 * golden["tolerance"]["head"] / 4  # a sigmoid is at most so steep
    lora = LoRARequest("a", 1, str(adapter))
    with (
        LLM(str(folder), dtype="float32", enable_lora=True, **OPTIONS) as llm,
        LLM(str(merged), dtype="float32", **OPTIONS) as other,
    ):
        found = llm.score(QUERY, DOCUMENTS, use_tqdm=False, lora_request=lora)
        plain = llm.score(QUERY, DOCUMENTS, use_tqdm=False)
        wanted = other.score(QUERY, DOCUMENTS, use_tqdm=False)
    for output, base, expected in zip(found, plain, wanted, strict=True):
        assert output.outputs.score == pytest.approx(expected.outputs.score, rel=0, abs=tolerance)
        assert abs(base.outputs.score - expected.outputs.score) > 20 * tolerance


@pytest.mark.parametrize("kind", ["template", "bert", "roberta", "unigram"])
def test_pairs_are_joined_as_the_tokenizer_says(kind: str, tmp_path: Path) -> None:
    reference = unigram() if kind == "unigram" else wordpiece()
    if kind == "bert":
        reference.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    if kind == "roberta":
        reference.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    reference.enable_truncation(16)  # what such files often say, and nobody asked for
    reference.enable_padding(length=64)
    folder = encoder_folder("bert", tmp_path / "m", reference)
    tokenizer = load_tokenizer(folder)
    assert tokenizer is not None
    reference.no_truncation()
    reference.no_padding()
    for first, second in (("What is it?", "Paris."), ("", "a"), ("a" * 40, "b " * 30)):
        encoding = reference.encode(first, second)
        second_at = encoding.type_ids.index(1) if 1 in encoding.type_ids else 0
        assert tokenizer.encode_pair(first, second) == (encoding.ids, second_at)
        assert tokenizer.encode(first, True) == reference.encode(first).ids


def test_pairs_need_a_template(tmp_path: Path) -> None:
    reference = wordpiece()
    reference.post_processor = processors.ByteLevel()
    folder = encoder_folder("bert_classifier", tmp_path / "m", reference)
    with LLM(str(folder), **OPTIONS) as llm:
        failed = llm.score("a", "b", use_tqdm=False)[0]
        assert "how two texts are joined" in str(failed.error_msg)

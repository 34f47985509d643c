"""Guided decoding with the shipped model: hot sampling, and every output conforms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import model_folders
import native_model
import pytest
from conftest import ROOT

from headrace import (
    LLM,
    Engine,
    GenerationConfig,
    GuidedDecodingParams,
    RequestOutput,
    SamplingParams,
    shipped_model,
)
from headrace.text.tokenizer import Tokenizer

CHECKPOINT = ROOT / "examples" / "tiny_model" / "checkpoint" / "config.json"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
TAGGED = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<call=add>", "schema": {"type": "integer"}, "end": "</call>"},
        {"begin": "<call=ask>", "schema": {"type": "boolean"}, "end": "</call>"},
    ],
    "triggers": ["<call="],
}


def is_person(text: str) -> bool:
    value = json.loads(text)
    tags = value.get("tags", [])
    return (
        set(value) <= {"name", "age", "kind", "tags"}
        and 1 <= len(value["name"]) <= 12
        and isinstance(value["age"], int)
        and 0 <= value["age"] <= 120
        and value["kind"] in ("cat", "dog", None)
        and len(tags) <= 3
        and all(len(tag) <= 5 for tag in tags)
    )


def balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += {"(": 1, ")": -1}[char]
        if depth < 0:
            return False
    return depth == 0


def well_tagged(text: str) -> bool:
    whole = r"<call=(add>\s*-?\d+\s*|ask>\s*(true|false)\s*)</call>"
    return "<call=" not in re.sub(whole, "", text)


Case = tuple[GuidedDecodingParams, Callable[[str], Any]]
G = GuidedDecodingParams
CASES: dict[str, Case] = {
    "schema": (G(json=PERSON), is_person),
    "schema text": (G(json=json.dumps(PERSON)), is_person),
    "regex": (
        G(regex=r"[A-Z][a-z]{2,8}, [0-9]{4}(é|你)?"),
        lambda text: re.fullmatch(r"[A-Z][a-z]{2,8}, [0-9]{4}(é|你)?", text),
    ),
    "choice": (G(choice=["yes", "no", " no", "你好"]), ["yes", "no", " no", "你好"].__contains__),
    "lark": (G(grammar='start: pair+\npair: "(" pair{0,2} ")"'), balanced),
    "gbnf": (
        G(grammar='root ::= "a" (digit ",")* "b"\ndigit ::= [0-9]'),
        lambda text: re.fullmatch(r"a(\d,)*b", text),
    ),
    "object": (G(json_object=True), lambda text: isinstance(json.loads(text), dict)),
    "tags": (G(structural_tag=json.dumps(TAGGED)), well_tagged),
}
HOT = SamplingParams(temperature=2.5, max_tokens=300, logprobs=2)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(shipped_model(), enable_logprob=True, block_size=16) as own:
        yield own


def guided(name: str, **values: Any) -> SamplingParams:
    return replace(HOT, guided_decoding=CASES[name][0], **values)


def generate(llm: LLM, prompts: list[str], params: Any) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


@pytest.mark.parametrize("name", CASES)
def test_every_output_conforms(llm: LLM, name: str) -> None:
    params = [guided(name, seed=seed) for seed in range(40)]
    outputs = generate(llm, ["The answer is", "x"] * 20, params)
    complete = 0
    for output in outputs:
        done = output.outputs
        assert output.error_code == 200, output.error_msg
        assert done.logprobs is not None
        assert len(done.logprobs) == len(done.token_ids)
        if done.finish_reason == "length":  # a hot model likes whitespace, where it may come
            assert len(done.token_ids) == 300
            continue
        complete += 1
        assert done.finish_reason == "stop"
        assert done.token_ids[-1] in llm.model_info.eos_token_ids
        assert CASES[name][1](done.text), done.text
    assert complete > (0 if "schema" in name or name in ("object", "tags") else 30)


def facts(output: RequestOutput) -> Any:
    done = output.outputs
    return done.token_ids, done.text, done.finish_reason, done.logprobs


def test_neighbours_change_nothing(llm: LLM) -> None:
    prompts = [f"Count from {i} to 9." for i in range(16)]
    names = [*CASES, *([None] * 8)]
    params = [
        replace(HOT, max_tokens=60, seed=i) if name is None else guided(name, seed=i, max_tokens=60)
        for i, name in enumerate(names)
    ]
    alone = [facts(generate(llm, [p], own)[0]) for p, own in zip(prompts, params, strict=True)]
    together = [facts(output) for output in generate(llm, prompts, params)]
    assert together == alone
    with LLM(shipped_model(), enable_logprob=True, block_size=16, max_num_seqs=3) as narrow:
        assert [facts(output) for output in generate(narrow, prompts, params)] == alone


def test_n_chat_and_stream(llm: LLM) -> None:
    params = guided("schema", seed=5, n=4)
    ask = [{"role": "user", "content": "Who are you?"}]
    whole = llm.chat(ask, params, use_tqdm=False)
    assert len({output.outputs.text for output in whole}) > 1
    assert all(is_person(o.outputs.text) for o in whole if o.outputs.finish_reason == "stop")
    texts = [""] * 4
    for step in llm.chat(ask, params, use_tqdm=False, stream=True):
        for i, item in enumerate(step):
            texts[i] += "" if item is None else item.outputs.text
    assert texts == [output.outputs.text for output in whole]


def test_compact_json() -> None:
    params = guided("schema", logprobs=None)
    with LLM(shipped_model(), guided_decoding_disable_any_whitespace=True) as own:
        for output in generate(own, ["x"] * 10, params):
            outside = re.sub(r'"(\\.|[^"\\])*"', "", output.outputs.text)
            assert not re.search(r"\s", outside) or output.outputs.finish_reason == "length"


def test_backend_off() -> None:
    params = guided("schema", logprobs=None)
    refused = pytest.raises(ValueError, match="guided_backend is None")
    with LLM(shipped_model(), guided_decoding_backend="off") as own, refused:
        generate(own, ["x"], params)


def test_how_it_ends(llm: LLM) -> None:
    def one(**values: Any) -> Any:
        return generate(llm, ["x"], replace(HOT, logprobs=None, **values))[0].outputs

    forced = G(choice=["abcabc"])
    done = one(guided_decoding=forced, ignore_eos=True)
    assert (done.text, done.finish_reason) == ("abcabc", "stop")
    assert done.token_ids[-1] not in llm.model_info.eos_token_ids
    assert one(guided_decoding=forced, min_tokens=50).text == "abcabc"
    done = one(guided_decoding=G(regex="(ab)*"), min_tokens=20)
    assert len(done.token_ids) >= 20
    assert re.fullmatch("(ab)*", done.text) or done.finish_reason == "length"
    assert one(guided_decoding=G(choice=[""])).text == ""
    assert one(guided_decoding=G(choice=[""]), ignore_eos=True).token_ids == []
    done = one(guided_decoding=G(regex="x{1000}"), max_tokens=7)
    assert (len(done.token_ids), done.finish_reason) == (7, "length")
    done = one(guided_decoding=G(choice=["one two"]), stop=" t")
    assert (done.text, done.stop_reason) == ("one", " t")


def test_bad_grammars_cost_their_request_alone(llm: LLM) -> None:
    bad = SamplingParams(guided_decoding=G(regex="("))
    with pytest.raises(ValueError, match="regular expression"):
        generate(llm, ["x"], bad)
    wide = 'start: "q" x\nx: ' + " | ".join(f"r{i}" for i in range(900))
    wide += "".join(f'\nr{i}: /a?/ x | "b"' for i in range(900))
    slow = SamplingParams(guided_decoding=G(grammar=wide), max_tokens=30)
    fine = SamplingParams(temperature=0.0, max_tokens=20)
    outputs = generate(llm, ["x", "What is 2 + 3?", "x"], [bad, fine, slow])
    assert [output.error_code for output in outputs] == [400, 200, 400]
    assert re.search("items|takes too long", outputs[2].error_msg or "")
    alone = generate(llm, ["What is 2 + 3?"], fine)[0]
    assert outputs[1].outputs.text == alone.outputs.text


def byte_level_model(folder: Path) -> None:
    model_folders.byte_level_folder(folder)


def llama_model(folder: Path) -> None:
    model_folders.byte_level_folder(folder)
    model_folders.byte_fallback().save(str(folder / "tokenizer.json"))


def sentencepiece_model(folder: Path, **options: Any) -> None:
    model_folders.sentencepiece_folder(folder, **options)


TOKENIZERS: dict[str, Callable[[Path], None]] = {
    "byte level": byte_level_model,
    "llama": llama_model,
    "sentencepiece": sentencepiece_model,
    "sentencepiece, no dummy": partial(sentencepiece_model, add_dummy_prefix=False),
    "sentencepiece, all spaces": partial(sentencepiece_model, remove_extra_whitespaces=False),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_kind_of_tokenizer(name: str, tmp_path: Path) -> None:
    """The grammar's text is the output's, spaces at its start included."""
    TOKENIZERS[name](tmp_path)
    model_folders.write_config(tmp_path, 1024, **native_model.LLAMA)
    wanted: list[tuple[GuidedDecodingParams, str]] = [
        (G(regex=r"[a-z]{2,6} [a-z]{2,6}[.!]"), r"[a-z]{2,6} [a-z]{2,6}[.!]"),
        (G(regex=r" [a-z]{3}(é|你)"), r" [a-z]{3}(é|你)"),
        (G(regex=r"  a*b"), r"  a*b"),
        (G(choice=["  two", " one", "zero", "你好 x"]), "  two| one|zero|你好 x"),
        (G(json={"type": "array", "items": {"type": "boolean"}, "maxItems": 3}), r"\[[\s\S]*\]"),
        (G(structural_tag=json.dumps(TAGGED)), r"[\s\S]*"),
    ]
    params = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=200, guided_decoding=guide)
        for guide, _ in wanted
        for seed in range(12)
    ]
    own = LLM(str(tmp_path), load_choices="dummy", num_threads=1, kv_cache_bytes=16 << 20)
    with own:
        outputs = generate(own, ["the cat"] * len(params), params)
    complete = 0
    for i, output in enumerate(outputs):
        assert output.error_code == 200, output.error_msg
        if output.outputs.finish_reason == "stop":
            complete += 1
            assert re.fullmatch(wanted[i // 12][1], output.outputs.text), output.outputs.text
    assert complete > 36


def test_the_native_engine(native_engine: Engine) -> None:
    from headrace.grammar import compile_constraint

    config = GenerationConfig(max_tokens=200, seed=3)

    def text(guided_by: Any = None) -> str:
        request = native_engine.submit("m", "x", config, guided=guided_by)
        request.wait()
        return request.results().get().text

    tokenizer = native_engine.tokenizer("m")
    for guided_by in (
        {"type": "json_object", "json_schema": '{"enum": ["aa", 1, null]}'},
        {"type": "json_schema", "json_schema": {"schema": {"enum": ["aa", 1, None]}}},
        G(json={"enum": ["aa", 1, None]}),
        compile_constraint(G(choice=['"aa"', "1", "null"]), tokenizer),
    ):
        assert text(guided_by) in ('"aa"', "1", "null")
    assert text({"type": "text"}) == text()
    with pytest.raises(ValueError, match="type must be"):
        text({"type": "nonsense"})
    with pytest.raises(TypeError, match="guided must be"):
        text(3)


def test_an_end_token_of_the_tokenizer_alone(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    assert isinstance(tokenizer, Tokenizer)
    table = tokenizer.token_bytes()
    assert all(table.tokens[i] == b"" for i in llm.model_info.eos_token_ids)


def test_allowed_tokens(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    end = tokenizer.eos_token_id
    allowed = [*tokenizer.encode("What is 2 + 3?"), 0]  # a special one, too
    params = replace(HOT, seed=3, max_tokens=60, allowed_token_ids=allowed)
    (output,) = generate(llm, ["User: Hi\nAssistant: "], params)
    assert output.error_code == 200, output.error_msg
    assert set(output.outputs.token_ids) <= set(allowed)
    assert (len(output.outputs.token_ids), output.outputs.finish_reason) == (60, "length")
    params = replace(params, allowed_token_ids=[allowed[0], end])
    (output,) = generate(llm, ["User: Hi\nAssistant: "], params)
    assert output.outputs.finish_reason == "stop"
    assert set(output.outputs.token_ids[:-1]) <= {allowed[0]}
    with pytest.raises(ValueError, match=r"allowed_token_ids must hold ids below .*1000000"):
        generate(llm, ["a"], replace(HOT, allowed_token_ids=[10**6]))

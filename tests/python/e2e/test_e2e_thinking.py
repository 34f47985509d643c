"""Limits on thinking and guided tool calls, with the real engine and random weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import thinking_folder

from headrace import LLM, GuidedDecodingParams, RequestOutput, SamplingParams

ASK = [{"role": "user", "content": "What is one and one?"}]


def open_llm(folder: Path, **values: Any) -> LLM:
    defaults = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
    return LLM(
        str(folder),
        load_choices="dummy",
        num_threads=1,
        kv_cache_bytes=16 << 20,
        max_model_len=4096,
        **{**defaults, **values},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thinking_folder.make_folder(tmp_path_factory.mktemp("thinking"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with open_llm(folder) as own:
        yield own


def params(seed: int = 1, **values: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "seed": seed, "max_tokens": 80, **values})


def end_token(llm: LLM) -> int:
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    token_id: int = tokenizer.convert_tokens_to_ids("</think>")
    return token_id


def chat(llm: LLM, own: SamplingParams, **values: Any) -> RequestOutput:
    output = llm.chat(ASK, own, use_tqdm=False, **values)[0]
    assert output.error_code == 200, output.error_msg
    return output


@pytest.mark.parametrize("limit", [0, 1, 7, 40])
def test_exactly_so_many_tokens_of_thinking(llm: LLM, limit: int) -> None:
    end = end_token(llm)
    for seed in range(8):
        # Without an end: while the model thinks, it has none.
        done = chat(llm, params(seed, reasoning_max_tokens=limit, ignore_eos=True)).outputs
        thought = done.token_ids.index(end)
        assert thought <= limit
        assert done.reasoning_token_num == thought
        free = chat(llm, params(seed, ignore_eos=True)).outputs
        if end not in free.token_ids[:limit]:
            assert thought == limit
            assert done.token_ids[:limit] == free.token_ids[:limit]


def test_limits_are_the_same_with_neighbours_and_guesses(folder: Path, llm: LLM) -> None:
    many = [params(seed, reasoning_max_tokens=seed, max_tokens=50) for seed in range(12)]
    alone = [chat(llm, own).outputs for own in many]
    together = llm.chat([ASK] * 12, many, use_tqdm=False)
    assert [o.outputs.token_ids for o in together] == [o.token_ids for o in alone]
    guesses = {"method": "ngram", "num_speculative_tokens": 4}
    with open_llm(folder, speculative_config=guesses, max_num_seqs=3) as guessing:
        outputs = guessing.chat([ASK] * 12, many, use_tqdm=False)
    assert [o.outputs.token_ids for o in outputs] == [o.token_ids for o in alone]


def test_without_thinking_there_is_no_limit(llm: LLM) -> None:
    own = params(reasoning_max_tokens=0)
    done = chat(llm, own, chat_template_kwargs={"enable_thinking": False}).outputs
    free = chat(llm, params(), chat_template_kwargs={"enable_thinking": False}).outputs
    assert done.token_ids == free.token_ids
    assert (done.reasoning_content, done.reasoning_token_num) == (None, 0)


def test_so_many_tokens_of_answer(llm: LLM) -> None:
    end = end_token(llm)
    for seed in range(8):
        own = params(seed, reasoning_max_tokens=5, response_max_tokens=6, ignore_eos=True)
        done = chat(llm, own).outputs
        assert len(done.token_ids) - done.token_ids.index(end) - 1 == 6
        assert done.finish_reason == "length"


def test_guided_decoding_begins_after_the_thinking(llm: LLM) -> None:
    guided = GuidedDecodingParams(choice=["yes", "no"])
    for seed in range(6):
        done = chat(llm, params(seed, reasoning_max_tokens=9, guided_decoding=guided)).outputs
        assert done.text in ("yes", "no")
        assert done.finish_reason == "stop"


@pytest.mark.parametrize("thinks", [False, True])
def test_guided_decoding_where_the_model_may_think(llm: LLM, thinks: bool) -> None:
    """The template doesn't open it; a bias decides if the model does."""
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    bias = {tokenizer.convert_tokens_to_ids("<think>"): 100.0 if thinks else -100.0}
    guided = GuidedDecodingParams(choice=["yes", "no"])
    own = params(
        reasoning_max_tokens=0,
        guided_decoding=guided,
        logits_processors_args={"logit_bias": bias},
    )
    done = chat(llm, own, chat_template="{{ messages[0].content }} ").outputs
    assert done.text in ("yes", "no")
    assert (done.completion_tokens or "").startswith("<think></think>") == thinks


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    "parser", ["hermes", "ernie-x1", "ernie-45-vl-thinking", "qwen3-coder", "llama3-json"]
)
def test_required_calls_are_valid(tmp_path: Path, parser: str, special: bool) -> None:
    folder = thinking_folder.make_folder(tmp_path, special_calls=special)
    named = {"type": "function", "function": {"name": "pick"}}
    with open_llm(folder, tool_call_parser=parser) as own:
        for seed in range(4):
            limits = params(seed, reasoning_max_tokens=4, max_tokens=600)
            done = chat(own, limits, tools=thinking_folder.TOOLS, tool_choice="required").outputs
            calls = done.tool_calls or []
            assert all(
                thinking_folder.is_call(c.function.name, c.function.arguments) for c in calls
            )
            assert calls or done.finish_reason == "length", done.completion_tokens
            done = chat(own, limits, tools=thinking_folder.TOOLS, tool_choice=named).outputs
            assert [call.function.name for call in done.tool_calls or []] == ["pick"]
            assert done.finish_reason == "tool_calls"
            assert thinking_folder.is_call("pick", done.tool_calls[0].function.arguments)
            assert done.text == ""


@pytest.mark.parametrize("parser", ["pythonic", "mistral", "mistral-v11", "glm-45", "harmony"])
def test_named_calls_of_other_formats(tmp_path: Path, parser: str) -> None:
    folder = thinking_folder.make_folder(tmp_path)
    named = {"type": "function", "function": {"name": "add"}}
    with open_llm(folder, tool_call_parser=parser, reasoning_parser=None) as own:
        for seed in range(4):
            limits = params(seed, max_tokens=600)
            done = chat(own, limits, tools=thinking_folder.TOOLS, tool_choice=named).outputs
            assert [call.function.name for call in done.tool_calls or []] == ["add"]
            assert thinking_folder.is_call("add", done.tool_calls[0].function.arguments)


def test_arguments_come_as_they_are_written(llm: LLM) -> None:
    choice = {"tools": thinking_folder.TOOLS, "tool_choice": "required"}
    own = params(3, reasoning_max_tokens=3, max_tokens=600)
    whole = chat(llm, own, **choice).outputs
    total = RequestOutput("r")
    pieces: list[Any] = []
    for updates in llm.chat(ASK, own, stream=True, **choice):
        for update in updates:
            if update is not None:
                total.accumulate(update)
                pieces += update.outputs.tool_calls or []
    assert total.outputs is not None
    assert total.outputs.completion_tokens == whole.completion_tokens

    def written(calls: Any) -> list[tuple[int, str, str]]:
        return [(c.index, c.function.name, c.function.arguments) for c in calls]

    assert written(total.outputs.tool_calls) == written(whole.tool_calls)
    # How many pieces there are depends on the reader's speed; test_parsers_cuts has each of them.
    assert len(pieces) >= len(whole.tool_calls or ()) > 0


@pytest.mark.parametrize("parser", ["hermes", "qwen3-coder"])
def test_calls_without_whitespace(folder: Path, parser: str) -> None:
    compact = {"guided_decoding_disable_any_whitespace": True, "reasoning_parser": None}
    with open_llm(folder, tool_call_parser=parser, **compact) as own:
        done = chat(
            own, params(max_tokens=300), tools=thinking_folder.TOOLS, tool_choice="required"
        ).outputs
    assert done.tool_calls
    text = done.completion_tokens or ""
    if parser == "hermes":
        assert re.search(r'"arguments": \{"\w+":', text)
    else:
        assert re.search(r"<parameter=\w+>\n\S+\n</parameter>", text)


@pytest.mark.parametrize("limit", [None, 30])
def test_a_model_that_thinks_has_no_end(llm: LLM, limit: int | None) -> None:
    """With a limit, that is; without one, it ends where it wants to (after min_tokens)."""
    bias = {llm.model_info.eos_token_ids[0]: 50.0}
    own = params(reasoning_max_tokens=limit, logits_processors_args={"logit_bias": bias})
    done = chat(llm, own).outputs
    assert done.finish_reason == "stop"
    assert done.reasoning_token_num == (1 if limit is None else limit)


def test_calls_that_may_come_are_valid(llm: LLM) -> None:
    """A bias makes the model begin calls; what it begins it must end as the schema says."""
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    opening = tokenizer.convert_tokens_to_ids("<tool_call>")
    called = 0
    for seed in range(6):
        own = params(
            seed,
            reasoning_max_tokens=3,
            max_tokens=300,
            logits_processors_args={"logit_bias": {opening: 4.0}},
        )
        done = chat(llm, own, tools=thinking_folder.TOOLS).outputs
        calls = done.tool_calls or []
        called += len(calls)
        written = calls[:-1] if done.finish_reason == "length" else calls  # the last may be cut
        assert all(thinking_folder.is_call(c.function.name, c.function.arguments) for c in written)
        whole = done.completion_tokens or ""
        answer = whole.partition("</think>")[2]
        assert answer.count("<tool_call>") - len(calls) <= (done.finish_reason == "length")
    assert called > 3


def test_calls_or_an_answer_of_a_schema(llm: LLM) -> None:
    """Where a schema is asked for beside tools, nothing but calls or such an answer comes."""
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    openings = [tokenizer.convert_tokens_to_ids(token) for token in ("{", "<tool_call>")]
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    called = answered = 0
    for seed in range(6):
        own = params(
            seed,
            reasoning_max_tokens=2,
            max_tokens=300,
            guided_decoding=GuidedDecodingParams(json=schema),
            logits_processors_args={"logit_bias": {openings[seed % 2]: 6.0}},
        )
        done = chat(llm, own, tools=thinking_folder.TOOLS).outputs
        if done.tool_calls:
            called += 1
            assert done.text.strip() == ""
        elif done.finish_reason == "stop":
            answered += 1
            assert set(json.loads(done.text)) == {"sum"}
    assert called
    assert answered


def test_what_cannot_be_asked_for(llm: LLM, folder: Path, tmp_path: Path) -> None:
    def error(own: LLM, sampling: SamplingParams | None = None, **values: Any) -> str:
        output = own.chat(ASK, sampling or params(), use_tqdm=False, **values)[0]
        assert output.error_code == 400
        return output.error_msg or ""

    tools = thinking_folder.TOOLS
    guided = params(guided_decoding=GuidedDecodingParams(choice=["a"]))
    assert "can't be combined" in error(llm, guided, tools=tools)
    few = params(allowed_token_ids=[5])
    assert "allowed_token_ids and tools can't be" in error(llm, few, tools=tools)
    few.reasoning_max_tokens = 3
    assert "allowed_token_ids and reasoning_max_tokens can't be" in error(llm, few)
    function: dict[str, Any] = {"name": "f", "strict": True, "parameters": {"not": {}}}
    odd = [{"type": "function", "function": function}]
    assert "guided_decoding_backend='off'" in error(llm, tools=odd)
    function["strict"] = False
    with pytest.warns(UserWarning, match="f: not at / is left to the model"):
        assert llm.chat(ASK, params(), use_tqdm=False, tools=odd)[0].error_code == 200
    with open_llm(folder, guided_decoding_backend="off") as own:
        assert "switched off" in error(own, tools=tools, tool_choice="required")
        assert own.chat(ASK, params(), use_tqdm=False, tools=tools)[0].error_code == 200
    with open_llm(folder, tool_call_parser=None) as own:
        assert "tool_call_parser" in error(own, tools=tools, tool_choice="required")
    bare = tmp_path / "bare"
    bare.mkdir()
    thinking_folder.byte_level_folder(bare)
    thinking_folder.write_config(bare, 512, **thinking_folder.native_model.LLAMA)
    with open_llm(bare) as own:
        assert "doesn't show them" in error(own, tools=tools)
        assert "as one token" in error(own, params(reasoning_max_tokens=3))

"""Thinking and tool calls in the outputs of LLM: a scripted model, and no guided decoding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import thinking_folder
from model_folders import byte_level_folder, sentencepiece_folder

from headrace import LLM, AsyncLLM, CompletionOutput, SamplingParams
from headrace.parsers import ReasoningFormat, reasoning_parsers, tool_parsers
from headrace.text.tokenizer import Tokenizer

ASK = [{"role": "user", "content": "Explain </think>, please."}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


@pytest.fixture(scope="module", params=[False, True], ids=["text", "special"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thinking_folder.make_folder(tmp_path_factory.mktemp("thinking"), request.param)


@pytest.fixture
def says(
    make_llm: Callable[..., LLM], fake_engine: Any, folder: Path
) -> Callable[[str], Callable[..., LLM]]:
    """says(text)(**engine_args): an LLM that answers with this text."""

    def scripted(text: str) -> Callable[..., LLM]:
        def make(**values: Any) -> LLM:
            defaults = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
            off = {"guided_decoding_backend": "off"}
            llm = make_llm(folder, **{**defaults, **off, **values})
            tokenizer = llm.get_tokenizer()
            assert tokenizer is not None
            ids = [*tokenizer.encode(text), 2]
            fake_engine.script = lambda prompt, output, seed: ids[len(output)]
            return llm

        return make

    return scripted


def whole(llm: LLM, *args: Any, **values: Any) -> CompletionOutput:
    output = llm.chat(ASK, *args, use_tqdm=False, **values)[0]
    assert output.error_code == 200, output.error_msg
    return output.outputs


def streamed(llm: LLM, *args: Any, **values: Any) -> CompletionOutput:
    total: Any = None
    for (increment,) in llm.chat(ASK, *args, use_tqdm=False, stream=True, **values):
        if increment is not None and total is None:
            total = increment
        elif increment is not None:
            total.accumulate(increment)
    outputs: CompletionOutput = total.outputs
    return outputs


def calls_of(output: CompletionOutput) -> list[tuple[str, str]]:
    calls = output.tool_calls or []
    assert [call.index for call in calls] == list(range(len(calls)))
    return [(call.function.name, call.function.arguments) for call in calls]


Says = Callable[[str], Callable[..., LLM]]


@pytest.mark.parametrize("read", [whole, streamed])
def test_the_parts_of_an_output(says: Says, read: Any) -> None:
    text = f"hm, so\n</think>\n\nLet me see.\n{CALL}\n{CALL}"
    llm = says(text)()
    done = read(llm, tools=thinking_folder.TOOLS)
    assert (done.reasoning_content, done.text) == ("hm, so", "Let me see.")
    assert calls_of(done) == [("add", '{"a": 1, "b": 2}')] * 2
    assert done.finish_reason == "tool_calls"
    assert done.completion_tokens == text
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    assert done.reasoning_token_num == len(tokenizer.encode("hm, so\n"))


@pytest.mark.parametrize("read", [whole, streamed])
def test_without_tools_calls_are_text(says: Says, read: Any) -> None:
    llm = says(f"hm</think>{CALL}")()
    assert read(llm).text == CALL
    none = {"tools": thinking_folder.TOOLS, "tool_choice": "none"}
    done = read(llm, **none)
    assert (done.text, done.tool_calls, done.finish_reason) == (CALL, None, "stop")


def test_parsers_that_were_not_asked_for_do_nothing(says: Says) -> None:
    text = "hm</think>Yes."
    done = whole(says(text)(reasoning_parser=None, tool_call_parser=None))
    assert (done.text, done.reasoning_content, done.tool_calls) == (text, None, None)


def test_the_template_says_where_an_output_begins(says: Says) -> None:
    """Not what a user writes: the question names the marker that ends the thinking."""
    llm = says("Yes.")()
    assert whole(llm).reasoning_content == "Yes."
    done = whole(llm, chat_template_kwargs={"enable_thinking": False})
    assert (done.text, done.reasoning_content) == ("Yes.", None)


@pytest.mark.parametrize(
    ("prompt", "thought", "text"),
    [
        ("1 <think>", "a", "b"),
        ("1 <think> 2 </think>", None, "a</think>b"),
        ("no marker", None, "a</think>b"),
    ],
)
def test_raw_prompts(says: Says, prompt: str, thought: str | None, text: str) -> None:
    llm = says("a</think>b")()
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    for given in (prompt, tokenizer.encode(prompt), {"prompt": prompt}):
        (output,) = llm.generate(given, use_tqdm=False)
        assert (output.outputs.reasoning_content, output.outputs.text) == (thought, text)


def test_an_output_cut_while_it_thinks(says: Says) -> None:
    done = whole(says("a long thought without an end")(), SamplingParams(max_tokens=3))
    assert (done.text, done.finish_reason, done.reasoning_token_num) == ("", "length", 3)
    assert done.reasoning_content == done.completion_tokens


@pytest.mark.parametrize("read", [whole, streamed])
def test_stop_strings_end_the_whole_text(says: Says, read: Any) -> None:
    llm = says(f"hm</think>one two {CALL}")()
    done = read(llm, SamplingParams(stop="<tool_c"), tools=thinking_folder.TOOLS)
    assert (done.reasoning_content, done.text, done.tool_calls) == ("hm", "one two ", None)


@pytest.mark.parametrize("read", [whole, streamed])
def test_so_many_tokens_of_answer(says: Says, read: Any) -> None:
    for parser in ("qwen3", None):
        llm = says("hm</think>one two three four five six")(reasoning_parser=parser)
        done = read(llm, SamplingParams(response_max_tokens=4))
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        thought = len(tokenizer.encode("hm</think>")) if parser else 0
        assert (len(done.token_ids), done.finish_reason) == (thought + 4, "length")


def test_a_limit_without_a_parser_warns(says: Says) -> None:
    llm = says("Yes.")(reasoning_parser=None)
    with pytest.warns(UserWarning, match="reasoning_max_tokens=3 has no effect without"):
        whole(llm, SamplingParams(reasoning_max_tokens=3))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("maybe", "tool_choice must be"),
        ({"function": {"name": "sub"}}, "'sub', which is not among"),
        (5, "tool_choice must be"),
    ],
)
def test_bad_tool_choices(says: Says, choice: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        whole(says("")(), tools=thinking_folder.TOOLS, tool_choice=choice)
    with pytest.raises(ValueError, match="needs tools"):
        whole(says("")(), tool_choice="required")


def test_unknown_parsers(make_llm: Callable[..., LLM], folder: Path) -> None:
    with pytest.raises(ValueError, match=r"reasoning_parser: .*'qwen9' not found; there are"):
        make_llm(folder, reasoning_parser="qwen9")
    with pytest.raises(ValueError, match=r"tool_call_parser: .*'x' not found; there are"):
        make_llm(folder, tool_call_parser="x")


def test_results_of_tools_reach_the_template(says: Says) -> None:
    llm = says("hm</think>3")()
    done = whole(says(f"hm</think>{CALL}")(), tools=thinking_folder.TOOLS)
    assert done.tool_calls is not None
    call = done.to_dict()["tool_calls"][0]
    dialogue = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "3"},
    ]
    (output,) = llm.chat(dialogue, use_tqdm=False, tools=thinking_folder.TOOLS)
    shown = json.dumps({"name": "add", "arguments": {"a": 1, "b": 2}})
    assert f"assistant: <tool_call>{shown}</tool_call>\ntool: 3\n" in output.prompt
    assert CompletionOutput.from_dict(json.loads(json.dumps(done.to_dict()))) == done


def test_a_plugin_file(make_llm: Callable[..., LLM], folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(
        "from headrace.parsers import tool_parsers\n"
        "class Mine(tool_parsers.get('hermes')): pass\n"
        "tool_parsers.register('my_own', Mine)\n"
    )
    llm = make_llm(folder, tool_call_parser="my-own", tool_parser_plugin=file)
    calls = llm._planner.parsing.calls
    assert calls is not None
    assert calls.__name__ == "Mine"
    file.write_text("1 / 0")
    with pytest.raises(ValueError, match=r"plugin\.py': ZeroDivisionError"):
        make_llm(folder, tool_parser_plugin=file)


def test_registering() -> None:
    own = ReasoningFormat("<a>", "</a>", closing="</a>")
    reasoning_parsers.register("Test_one", own)
    assert reasoning_parsers.get("Test-one") is own
    with pytest.raises(KeyError, match="already"):
        reasoning_parsers.register("Test_one", own, force=False)
    wrong: Any = dict
    with pytest.raises(TypeError, match="is no tool-call parser"):
        tool_parsers.register("wrong", wrong)


AUTO = [
    ("<|channel|>", "gpt-oss", "harmony"),
    ("<think> <tool_call>", "qwen3", "hermes"),
    ("<think> <tool_call> <function=", "qwen3", "qwen3-coder"),
    ("<think> <response> <tool_call>", "ernie-x1", "ernie-x1"),
    ("<think> <tool_list> <tool_call>", "ernie-45-vl-thinking", "ernie-45-vl-thinking"),
    ("Assistant: <think>", "ernie-45-vl", None),
    ("<think> <arg_key>", "glm-45", "glm-45"),
    ("[TOOL_CALLS]", None, "mistral"),
    ("[THINK] [TOOL_CALLS] [ARGS]", "mistral", "mistral-v11"),
    ("Environment: ipython", None, "llama3-json"),
    ("nothing", None, None),
]


@pytest.mark.parametrize(("template", "reasoning", "calls"), AUTO)
def test_auto(
    make_llm: Callable[..., LLM],
    folder: Path,
    template: str,
    reasoning: str | None,
    calls: str | None,
) -> None:
    auto = {"reasoning_parser": "auto", "tool_call_parser": "auto"}
    parsing = make_llm(folder, chat_template=f"{template}{{{{ x }}}}", **auto)._planner.parsing
    assert parsing.reasoning is (None if reasoning is None else reasoning_parsers.get(reasoning))
    assert parsing.calls is (None if calls is None else tool_parsers.get(calls))


def test_asyncllm_has_them_too(fake_engine: Any, folder: Path) -> None:
    text = f"hm</think>See: {CALL}"

    async def run() -> Any:
        llm = AsyncLLM(
            str(folder),
            reasoning_parser="qwen3",
            tool_call_parser="hermes",
            guided_decoding_backend="off",
        )
        async with llm:
            tokenizer = llm.get_tokenizer()
            assert tokenizer is not None
            ids = [*tokenizer.encode(text), 2]
            fake_engine.script = lambda prompt, output, seed: ids[len(output)]
            result = await llm.chat(ASK, tools=thinking_folder.TOOLS).result()
            parts = ["", "", 0]
            async for update in llm.chat(ASK, tools=thinking_folder.TOOLS):
                parts[0] += update.outputs.reasoning_content or ""
                parts[1] += update.outputs.text
                parts[2] += len(update.outputs.tool_calls or ())
            return result, parts

    result, parts = asyncio.run(run())
    assert (result.outputs.reasoning_content, result.outputs.text) == ("hm", "See:")
    assert calls_of(result.outputs) == [("add", '{"a": 1, "b": 2}')]
    assert parts == ["hm", "See:", 1]


@pytest.mark.parametrize("make", [byte_level_folder, sentencepiece_folder])
def test_special_tokens_that_stay(make: Callable[[Path], Path], tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(make(tmp_path))
    marks = tokenizer.convert_tokens_to_ids(["<s>", "</s>"])
    ids = [marks[0], *tokenizer.encode("hello"), marks[1]]
    detokenizer = tokenizer.detokenizer(True, frozenset({"</s>"}))
    text = "".join(map(detokenizer.push, ids)) + detokenizer.finish()
    assert text.strip() == "hello</s>"

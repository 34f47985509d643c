"""However an output is cut into pieces, its parts add up to what the whole of it gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.parsers import (
    Function,
    OutputParser,
    Parsed,
    Start,
    output_parser,
    reasoning_parsers,
    tool_parsers,
)

FUNCTIONS = [Function("f", {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}})]
CALL = '{"name": "f", "arguments": {"a": 1, "b": "}</tool_call>\\""}}'
WORDS = [
    *("<think>", "</think>", "<response>", "</response>", "<tool_call>", "</tool_call>"),
    *("<function=f>", "<parameter=a>", "<parameter=b>", "</parameter>", "</function>"),
    *("f\n<arg_key>a</arg_key>", "<arg_value>7</arg_value>", "<arg_value>", "</arg_value>"),
    *("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]", "[", "]", "{", "}", '"', "\\", "'", ";"),
    *("<|python_tag|>", '{"name": "f", "parameters": {"b": "{"}}', "[f(a=1, b=']')", "g", "f{"),
    *("<|start|>assistant", "<|channel|>analysis", "<|channel|>final", "<|message|>", "<|end|>"),
    *("<|channel|>commentary to=functions.f <|constrain|>json", "<|call|>", '{"a": 1}', "é🙂"),
    *(f"<tool_call>{CALL}</tool_call>", f"<tool_call>\n{CALL}\n</tool_call>", f"[{CALL}, {CALL}]"),
    *("\n", "\n\n", " ", "  x ", "<", "</", "<th", "ink>", "all the rest", "<|", "tool_call"),
]
CHANNELS = ("gpt-oss", None), ("gpt-oss", "harmony"), (None, "harmony"), ("gpt-oss", "hermes")
PAIRS = [(None, tools) for tools in tool_parsers.names()] + [
    (reasoning, tools)
    for reasoning in reasoning_parsers.names()
    if reasoning != "gpt-oss"
    for tools in (None, "hermes", "ernie-x1", "ernie-45-vl-thinking", "llama3-json")
]

# Calls exactly as their grammars have them, whole and broken off.
GUIDED = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": ',
    "ernie-x1": '<tool_call>\n{"name": "f", "arguments": ',
    "llama3-json": '{"name": "f", "parameters": ',
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": ',
    "mistral-v11": "[TOOL_CALLS]f[ARGS]",
    "harmony": "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
}
ENDS = {
    "hermes": "}\n</tool_call>",
    "ernie-x1": "}\n</tool_call>",
    "llama3-json": "}",
    "mistral": "}]",
    "mistral-v11": "",
    "harmony": "<|call|>",
}
ARGUMENTS = ['{"a": 1, "b": "}</tool_call>\\" ]é"}', '{"b":{"c":[{}]}}', "{}", '{"a": <']

texts = st.lists(st.sampled_from(WORDS), max_size=12).map("".join)


def new_parser(
    reasoning: str | None, tools: str | None, start: Start | None, guided: bool = False
) -> OutputParser:
    return output_parser(
        None if reasoning is None else reasoning_parsers.get(reasoning),
        None if tools is None else tool_parsers.get(tools),
        start=start,
        functions=FUNCTIONS,
        guided=guided,
    )


def parts(parsed: Parsed) -> Any:
    calls = [(c.index, c.function.name, c.function.arguments) for c in parsed.tool_calls]
    return parsed.content, parsed.reasoning, calls


def read(parser: OutputParser, pieces: list[str]) -> Any:
    total = Parsed()
    for piece in pieces:
        total += parser.push(piece)
    return parts(total + parser.finish())


@pytest.mark.parametrize(("reasoning", "tools"), sorted({*PAIRS, *CHANNELS}, key=str))
@settings(max_examples=25, deadline=None)
@given(text=texts, data=st.data(), start=st.sampled_from([None, *Start]))
def test_every_cut_gives_the_same(
    reasoning: str | None, tools: str | None, text: str, data: st.DataObject, start: Start | None
) -> None:
    whole = read(new_parser(reasoning, tools, start), [text])
    assert read(new_parser(reasoning, tools, start), list(text)) == whole
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(new_parser(reasoning, tools, start), pieces) == whole


@settings(max_examples=100, deadline=None)
@given(text=texts, start=st.sampled_from([None, *Start]))
def test_nothing_is_held_longer_than_it_must(text: str, start: Start | None) -> None:
    """What has been given never depends on what comes later, and no text is lost."""
    parser = new_parser("ernie-45-vl", None, start)
    given_text = ""
    for char in text:
        out = parser.push(char)
        given_text += out.reasoning + out.content
    out = parser.finish()
    given_text += out.reasoning + out.content
    bare = text.replace("<think>", "").replace("</think>", "")
    assert given_text.replace("<think>", "").replace("</think>", "").strip() == bare.strip()


def test_plain_text_is_given_at_once() -> None:
    for reasoning, tools in PAIRS:
        if reasoning in ("ernie-x1", "mistral"):
            continue
        parser = new_parser(reasoning, tools, Start.CONTENT)
        out = parser.push("Hello, world")
        assert out.content == "Hello, world", (reasoning, tools)


@pytest.mark.parametrize("tools", sorted(GUIDED))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_cut_of_guided_calls_gives_the_same(tools: str, data: st.DataObject) -> None:
    calls = [GUIDED[tools] + text + ENDS[tools] for text in ARGUMENTS]
    words = st.one_of(st.sampled_from(calls), st.sampled_from([GUIDED[tools], *WORDS]))
    text = "".join(data.draw(st.lists(words, max_size=6)))
    text = text[: data.draw(st.integers(0, len(text)))]
    start = data.draw(st.sampled_from([None, *Start]))
    whole = read(new_parser(None, tools, start, guided=True), [text])
    assert read(new_parser(None, tools, start, guided=True), list(text)) == whole
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(new_parser(None, tools, start, guided=True), pieces) == whole


@pytest.mark.parametrize("tools", sorted(GUIDED))
@pytest.mark.parametrize("arguments", ARGUMENTS[:3])
def test_arguments_of_guided_calls_come_as_they_are_written(tools: str, arguments: str) -> None:
    parser = new_parser(None, tools, Start.CONTENT, guided=True)
    assert not parser.push(GUIDED[tools])
    told = ""
    for place, char in enumerate(arguments, 1):
        for call in parser.push(char).tool_calls:
            assert (call.continues, call.index) == (bool(told), 0)
            assert call.function.name == ("" if told else "f")
            told += call.function.arguments
        held = 1 if tools == "harmony" and char == "<" else 0  # may begin a marker
        assert told == arguments[: place - held]
    assert not parser.push(ENDS[tools] + " ").tool_calls
    assert not parser.finish()
    # The same call, cut in its arguments: what has been told stays, and nothing else.
    parser = new_parser(None, tools, Start.CONTENT, guided=True)
    cut = parser.push("\n" + GUIDED[tools] + arguments[:-1]) + parser.finish()
    assert [call.function.arguments for call in cut.tool_calls] == [arguments[:-1]]
    assert not cut.content.strip()


def test_a_second_call_behind_a_guided_one() -> None:
    parser = new_parser(None, "mistral", Start.CONTENT, guided=True)
    text = '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {}}]'
    found = parts(parser.push(text) + parser.finish())
    assert found == ("", "", [(0, "f", '{"a": 1}'), (1, "f", "{}")])


def test_calls_that_are_not_guided_come_whole() -> None:
    parser = new_parser(None, "hermes", Start.CONTENT, guided=True)
    for text in ('<tool_call>{"name": "f", "arg', 'uments": {"a": 1'):
        assert not parser.push(text)
    (call,) = parser.push("}}</tool_call>").tool_calls
    assert call.function.arguments == '{"a": 1}'

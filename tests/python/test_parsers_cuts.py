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

texts = st.lists(st.sampled_from(WORDS), max_size=12).map("".join)


def new_parser(reasoning: str | None, tools: str | None, start: Start | None) -> OutputParser:
    return output_parser(
        None if reasoning is None else reasoning_parsers.get(reasoning),
        None if tools is None else tool_parsers.get(tools),
        start=start,
        functions=FUNCTIONS,
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

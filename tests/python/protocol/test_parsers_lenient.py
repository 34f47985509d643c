"""Calls and thoughts as models write them in practice, away from their formats' letter."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.parsers import Function, Parsed, Start, output_parser, reasoning_parsers, tool_parsers

CITY = {"city": {"type": "string"}, "state": {"type": "string"}}
FUNCTIONS = [
    Function("f", {"type": "object", "properties": {"n": {"type": "float"}, **CITY}}),
    Function("now", {}),
]
N, EMPTY = ("f", '{"n": 1}'), ("now", "{}")


def parse(
    calls: str, text: str, reasoning: str | None = None, start: Start | None = None, cut: int = 0
) -> Any:
    parser = output_parser(
        None if reasoning is None else reasoning_parsers.get(reasoning),
        tool_parsers.get(calls),
        start=start,
        functions=FUNCTIONS,
    )
    out = Parsed()
    for place in range(0, len(text), cut or len(text)):
        out += parser.push(text[place : place + (cut or len(text))])
    out += parser.finish()
    found = [(call.function.name, call.function.arguments) for call in out.tool_calls]
    return out.reasoning, out.content, found


def coder(*parts: str, end: str = "</function>\n</tool_call>") -> str:
    return "<tool_call>\n<function=f>\n" + "".join(parts) + end


DALLAS = "<parameter=city>\nDallas\n<parameter=state>\nTX\n</parameter>\n"
DALLAS_TX = ("f", '{"city": "Dallas", "state": "TX"}')
OPEN = "<parameter=city>\nDallas\n"
CALLS = [
    ("hermes", '<tool_call>{"name": "f", "parameters": {"n": 1}}</tool_call>', [N]),
    ("ernie-x1", '<tool_call>{"name": "f", "parameters": {"n": 1}}</tool_call>', [N]),
    ("mistral", '[TOOL_CALLS][{"name": "f", "parameters": {"n": 1}}]', [N]),
    ("llama3-json", '{"name": "f", "arguments": {"n": 1}}', [N]),
    ("llama3-json", '{"type": "function", "name": "f", "parameters": {"n": 1}}', [N]),
    ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', [EMPTY]),
    ("hermes", '<tool_call>{"name": "now", "arguments": ""}</tool_call>', [EMPTY]),
    ("llama3-json", '{"name": "Alice", "age": 3}', None),
    ("llama3-json", '{"name": "f", "age": 3}', None),
    ("llama3-json", '{"name": "Alice"}', None),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}, "age": 3}</tool_call>', None),
    ("mistral", '[TOOL_CALLS][{"name": "Alice", "age": 3}]', None),
    ("qwen3-coder", coder(DALLAS), [DALLAS_TX]),
    ("qwen3-coder", coder(OPEN), [("f", '{"city": "Dallas"}')]),
    ("qwen3-coder", coder(OPEN, end="</function>"), [("f", '{"city": "Dallas"}')]),
    ("qwen3-coder", coder(OPEN) + "\n" + coder(DALLAS), [("f", '{"city": "Dallas"}'), DALLAS_TX]),
    (
        "qwen3-coder",  # what is no parameter of the function is part of the value
        coder("<parameter=city>\na\n<parameter=other>\nb\n</parameter>\n"),
        [("f", '{"city": "a\\n<parameter=other>\\nb"}')],
    ),
    ("qwen3-coder", coder("<parameter=n>\n1.5\n</parameter>\n"), [("f", '{"n": 1.5}')]),
    ("qwen3-coder", coder(OPEN, end=""), None),
    (
        "pythonic",
        "[f(city=('a', ('b', 1)), n={1})]",
        [("f", '{"city": ["a", ["b", 1]], "n": [1]}')],
    ),
    (
        "pythonic",
        "[f(from='a=b', to='class=', class = 1,\n in=[1]), f(None=-1)]",
        [
            ("f", '{"from": "a=b", "to": "class=", "class": 1, "in": [1]}'),
            ("f", '{"None": -1}'),
        ],
    ),
    ("pythonic", "[f(from)]", None),
    ("pythonic", "[f(from='a]", None),
    ("mistral", '[TOOL_CALLS][TOOL_CALLS][{"name": "f", "arguments": {"n": 1}}]', [N]),
    ("mistral", '[TOOL_CALLS] [TOOL_CALLS] f[ARGS]{"n": 1}', [N]),
    ("mistral", '[TOOL_CALLS]{"name": "f", "arguments": {"n": 1}}', [N]),
    ("mistral", '[TOOL_CALLS] {"name": "f", "parameters": {"n": 1}}[TOOL_CALLS]now{}', [N, EMPTY]),
    ("mistral", '[TOOL_CALLS]{"n": 1}', None),
    ("glm-45", "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", [N]),
]


@pytest.mark.parametrize(("name", "text", "calls"), CALLS)
def test_calls(name: str, text: str, calls: Any) -> None:
    expected = ("", text, []) if calls is None else ("", "", calls)
    for cut in (0, 1, 7):
        assert parse(name, text, cut=cut) == expected


CALL = '<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>'
GLM = "<tool_call>now\n</tool_call>"
THOUGHTS = [
    ("qwen3", "hermes", None, f"<think>r\n{CALL}", ("r", "", [N])),
    ("qwen3", "hermes", Start.THINKING, f"r\n{CALL}\n{CALL}", ("r", "", [N, N])),
    ("glm-45", "glm-45", None, f"<think>r{GLM}", ("r", "", [EMPTY])),
    ("qwen3", "hermes", None, f"<think>r{CALL}s</think>a", (f"r{CALL}s", "a", [])),
    ("qwen3", "hermes", None, "<think>a <tool_c", ("a <tool_c", "", [])),
    ("qwen3", "pythonic", None, f"<think>r{CALL}", (f"r{CALL}", "", [])),
    ("qwen3", "hermes", None, "<think>r</think>\n</think>\n\na", ("r", "a", [])),
    ("deepseek-r1", "hermes", None, f"r</think></think> {CALL}", ("r", "", [N])),
    ("qwen3", "hermes", Start.CONTENT, "\n</think>\n\na", ("", "a", [])),
    ("qwen3", "hermes", None, "<think>r</think>a</think>b", ("r", "a</think>b", [])),
    ("qwen3", "hermes", None, "<think>r</think>\n</thi", ("r", "</thi", [])),
]


@pytest.mark.parametrize(("reasoning", "calls", "start", "text", "expected"), THOUGHTS)
def test_thoughts(reasoning: str, calls: str, start: Any, text: str, expected: Any) -> None:
    for cut in (0, 1, 7):
        assert parse(calls, text, reasoning, start, cut) == expected


@pytest.mark.parametrize(
    "parameters",
    [None, {}, {"type": "object"}, {"type": "object", "properties": {}}, {"type": "dict"}],
)
def test_a_function_without_parameters_takes_the_empty_object(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "now", "parameters": parameters}}
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert Function.from_tool(tool).parameters == closed


def test_what_says_more_is_kept() -> None:
    for schema in ({"type": "object", "additionalProperties": True}, {"$ref": "#/$defs/a"}):
        assert Function("f", schema).parameters == schema


def test_types_of_other_languages_are_jsons() -> None:
    written = {
        "type": "dict",
        "properties": {
            "type": {"type": "float", "default": {"type": "float"}},
            "any": {"type": "any", "enum": ["float"]},
            "list": {"type": ["list", "null"], "items": {"type": "int"}},
        },
    }
    assert Function("f", written).parameters == {
        "type": "object",
        "properties": {
            "type": {"type": "number", "default": {"type": "float"}},
            "any": {"enum": ["float"]},
            "list": {"type": ["array", "null"], "items": {"type": "integer"}},
        },
    }

"""What each parser makes of an output: reasoning, content and calls."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.parsers import Function, Parsed, Start, output_parser, reasoning_parsers, tool_parsers
from headrace.parsers.markers import Markers
from headrace.parsers.strict_json import MAX_ARGUMENT_CHARS, read_json

FUNCTIONS = [
    Function(
        "f",
        {
            "properties": {
                "n": {"type": "integer"},
                "s": {"type": "string"},
                "x": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "o": {"type": "object"},
                "e": {"enum": ["1", 2]},
            }
        },
    )
]
CALL = '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>'
F1, F2 = ("f", '{"n": 1}'), ("f", '{"n": 2}')
EITHER, THINKING, CONTENT = Start.EITHER, Start.THINKING, Start.CONTENT


def parse(reasoning: str | None, calls: str | None, text: str, start: Start | None = None) -> Any:
    parser = output_parser(
        None if reasoning is None else reasoning_parsers.get(reasoning),
        None if calls is None else tool_parsers.get(calls),
        start=start,
        functions=FUNCTIONS,
    )
    out: Parsed = parser.push(text) + parser.finish()
    found = [(call.function.name, call.function.arguments) for call in out.tool_calls]
    return out.reasoning, out.content, found


REASONING = [
    ("ernie-45-vl", None, "r</think>\ntext", ("r", "\ntext")),
    ("ernie-45-vl", None, "only thought", ("only thought", "")),
    ("ernie-45-vl", CONTENT, "text", ("", "text")),
    ("ernie-45-vl-thinking", None, "r</think>\n\n  text", ("r", "\n\n  text")),
    ("ernie-45-vl-thinking", None, "r</think>\n<tool_call>x</tool_call> y", ("r", "")),
    ("ernie-45-vl-thinking", None, "r</think>\nA<tool_call>x", ("r", "\nA<tool_call>x")),
    ("ernie-45-vl-thinking", None, "r<tool_call>x", ("r<tool_call>x", "")),
    ("ernie-45-vl-thinking", None, "r</think>\n\n", ("r", "")),
    ("ernie-x1", None, "r\n</think>\n<response>a\nb\n</response>\n", ("r\n", "a\nb\n")),
    ("ernie-x1", None, "r</think><response>cut", ("r", "cut")),
    ("ernie-x1", None, "r</think>dropped<response>a</response>dropped", ("r", "a")),
    ("ernie-x1", None, "r</think><tool_call>x</tool_call><response>a", ("r", "")),
    ("ernie-x1", None, "r", ("r", "")),
    ("qwen3", None, "<think>\nr\n\n</think>\n\ntext\n", ("r", "text\n")),
    ("qwen3", None, "text </think> more", ("", "text </think> more")),
    ("qwen3", None, "  <think>r", ("r", "")),
    ("qwen3", None, " <thin", ("", " <thin")),
    ("qwen3", THINKING, "r</think>text", ("r", "text")),
    ("qwen3", THINKING, "<think>r <think> s</think>a</think>b", ("r <think> s", "a</think>b")),
    ("qwen3", CONTENT, "<think>r</think>text", ("", "<think>r</think>text")),
    ("deepseek-r1", None, "r\n</think>\n\ntext", ("r", "text")),
    ("deepseek-r1", None, "r", ("r", "")),
    ("glm-45", None, "<think>r</think>text", ("r", "text")),
    ("mistral", None, "[THINK]r[/THINK]text", ("r", "text")),
    ("mistral", None, "text", ("", "text")),
    (
        "gpt-oss",
        None,
        "<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>final<|message|>text",
        ("r", "text"),
    ),
    ("gpt-oss", None, "text", ("", "text")),
    ("gpt-oss", THINKING, "r<|end|>text", ("r", "text")),
    ("gpt-oss", None, "<|channel|>fin", ("", "<|channel|>fin")),
]


@pytest.mark.parametrize(("name", "start", "text", "expected"), REASONING)
def test_reasoning(name: str, start: Start | None, text: str, expected: Any) -> None:
    assert parse(name, None, text, start)[:2] == expected


HARMONY = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
CALLS = [
    ("hermes", f"Let me see.\n{CALL}\n{CALL}\n", "Let me see.", [F1, F1]),
    ("hermes", f"{CALL}\nDone.\n", "Done.\n", [F1]),
    ("hermes", '<tool_call>{"name": "f"}', "", [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"n\\": 1}"}', "", [F1]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"s": "</tool_call>\\" é"}}</tool_call>',
        "",
        [("f", '{"s": "</tool_call>\\" é"}')],
    ),
    (
        "hermes",
        f"<tool_call>{{broken}}</tool_call> {CALL}",
        "<tool_call>{broken}</tool_call>",
        [F1],
    ),
    ("hermes", '<tool_call>{"name": "f", "arg', '<tool_call>{"name": "f", "arg', []),
    ("hermes", f'<tool_call>{{"name": "{CALL}', '<tool_call>{"name": "', [F1]),
    ("hermes", '<tool_call>{"name": 5, "arguments": {}}', None, []),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}', None, []),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"n": NaN}}', None, []),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"n": 1, "n": 2}}', None, []),
    ("hermes", "a </tool_call> b", "a </tool_call> b", []),
    ("ernie-x1", f"{CALL}{CALL}", "", [F1, F1]),
    ("ernie-x1", '<tool_call>"name": "f", "arguments": {"n": 1}</tool_call>', "", [F1]),
    ("ernie-x1", '<tool_call>{"name": "f", "arguments": {"n": 1}</tool_call>', "", [F1]),
    ("ernie-x1", f"<response>a</response>\n{CALL}", None, []),
    ("ernie-45-vl-thinking", f"\n\n{CALL}{CALL}", "", [F1, F1]),
    ("ernie-45-vl-thinking", f"r</think>\n{CALL}", "r</think>", [F1]),
    ("ernie-45-vl-thinking", f"abc{CALL}", None, []),
    ("ernie-45-vl-thinking", f"</think>abc{CALL}", None, []),
    (
        "qwen3-coder",
        "Hi\n<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=s>\n1 < 2\n"
        "</function>\n</parameter>\n</function>\n</tool_call>\n",
        "Hi",
        [("f", '{"n": 1, "s": "1 < 2\\n</function>"}')],
    ),
    (
        "qwen3-coder",
        "<function=f><parameter=x>null</parameter><parameter=o>{}</parameter></function> after",
        "after",
        [("f", '{"x": null, "o": {}}')],
    ),
    (
        "qwen3-coder",
        "<tool_call><function=f><parameter=n>true</parameter><parameter=e>1</parameter>"
        "<parameter=z>5</parameter></function></tool_call>",
        "",
        [("f", '{"n": "true", "e": "1", "z": "5"}')],
    ),
    ("qwen3-coder", "<tool_call>no function</tool_call>", None, []),
    ("qwen3-coder", "<tool_call><function=f><parameter=n>1", None, []),
    ("qwen3-coder", "<function=></function>", None, []),
    ("llama3-json", '{"name": "f", "parameters": {"n": 1}}', "", [F1]),
    (
        "llama3-json",
        ' <|python_tag|>{"name": "f", "arguments": {"n": 1}}; '
        '{"name": "f", "parameters": {"n": 2}} bye',
        "bye",
        [F1, F2],
    ),
    ("llama3-json", '{"n": 1} text', '{"n": 1} text', []),
    ("llama3-json", 'text {"name": "f", "parameters": {}}', None, []),
    ("llama3-json", '{"name": "f", "parameters": {}, "arguments": {}}', None, []),
    ("llama3-json", "<|python_tag|>print(1)", None, []),
    ("llama3-json", '{"name": "f", "parameters": {', None, []),
    (
        "pythonic",
        "[f(n=1, s=']\"', x=None), a.b(o={'k': [True, false, -1.5]})]",
        "",
        [
            ("f", '{"n": 1, "s": "]\\"", "x": null}'),
            ("a.b", '{"o": {"k": [true, false, -1.5]}}'),
        ],
    ),
    ("pythonic", "[1, 2]", None, []),
    ("pythonic", "[f(1)]", None, []),
    ("pythonic", "[f(n=g())]", None, []),
    ("pythonic", "[f(n=1", None, []),
    ("pythonic", "See [f(n=1)]", None, []),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}}]', "", [F1]),
    ("mistral", 'Hi[TOOL_CALLS]f{"n": 1}[TOOL_CALLS]f[ARGS]{"n": 2}', "Hi", [F1, F2]),
    ("mistral", '[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"n": 1}', "", [F1]),
    ("mistral", "[TOOL_CALLS] [{}]", None, []),
    ("mistral", "[TOOL_CALLS]no arguments", None, []),
    ("mistral", "[TOOL_CALLS]a b{}", None, []),
    (
        "glm-45",
        "Hi\n<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n"
        "<arg_key>s</arg_key>\n<arg_value></tool_call></arg_value>\n</tool_call>",
        "Hi",
        [("f", '{"n": 1, "s": "</tool_call>"}')],
    ),
    ("glm-45", "<tool_call>f</tool_call>", "", [("f", "{}")]),
    ("glm-45", "<tool_call>f<arg_key>n</arg_key></tool_call>", None, []),
    ("harmony", HARMONY + '{"n": 1}', "", [F1]),
    ("harmony", HARMONY + '{"n": 1}<|call|>' + HARMONY + "{}", "", [F1, ("f", "{}")]),
    ("harmony", HARMONY + '{"n":', '{"n":', []),
    ("harmony", HARMONY + "[1]", "[1]", []),
    ("harmony", "<|channel|>commentary to=python<|message|>1<|end|>", "1", []),
]


@pytest.mark.parametrize(("name", "text", "content", "calls"), CALLS)
def test_calls(name: str, text: str, content: str | None, calls: Any) -> None:
    """content None: the text, unchanged."""
    assert parse(None, name, text) == ("", text if content is None else content, calls)


BOTH = [
    ("qwen3", "hermes", f"<think>{CALL}</think>\n\n{CALL}", (CALL, "", [F1])),
    ("ernie-x1", "ernie-x1", f"r</think>\n\n\n{CALL}\n{CALL}", ("r", "", [F1, F1])),
    ("ernie-x1", "ernie-x1", f"r</think><response>a</response>{CALL}", ("r", "a", [])),
    ("ernie-x1", "ernie-x1", "r</think><tool_call>{", ("r", "<tool_call>{", [])),
    ("ernie-45-vl-thinking", "ernie-45-vl-thinking", f"r</think>\n{CALL}", ("r", "", [F1])),
    (
        "ernie-45-vl-thinking",
        "ernie-45-vl-thinking",
        f"r</think>\nA{CALL}",
        ("r", f"\nA{CALL}", []),
    ),
    (
        "gpt-oss",
        "harmony",
        "<|channel|>analysis<|message|>r<|end|><|start|>assistant" + HARMONY + '{"n": 1}',
        ("r", "", [F1]),
    ),
    ("gpt-oss", "hermes", f"<|channel|>final<|message|>{CALL}", ("", CALL, [])),
]


@pytest.mark.parametrize(("reasoning", "calls", "text", "expected"), BOTH)
def test_reasoning_and_calls(reasoning: str, calls: str, text: str, expected: Any) -> None:
    assert parse(reasoning, calls, text) == expected


def test_ids() -> None:
    def ids(name: str, text: str) -> list[str]:
        parser = output_parser(None, tool_parsers.get(name))
        return [call.id for call in (parser.push(text) + parser.finish()).tool_calls]

    hermes = ids("hermes", CALL + CALL)
    assert len(set(hermes)) == 2
    assert all(len(each) == len("chatcmpl-tool-") + 32 for each in hermes)
    (mistral,) = ids("mistral", "[TOOL_CALLS]f{}")
    assert len(mistral) == 9
    assert mistral.isalnum()


@pytest.mark.parametrize(
    ("name", "prompt", "expected"),
    [
        ("qwen3", "user: <think>x</think>\nassistant: <think>\n", THINKING),
        ("qwen3", "<think>\n\n</think>\n\n", CONTENT),
        ("qwen3", "nothing", EITHER),
        ("deepseek-r1", "nothing", THINKING),
        ("gpt-oss", "<|start|>user<|message|>x<|end|><|start|>assistant", EITHER),
        ("gpt-oss", "<|start|>assistant<|channel|>analysis<|message|>x", THINKING),
    ],
)
def test_where_an_output_begins(name: str, prompt: str, expected: Start) -> None:
    assert reasoning_parsers.get(name).start_after(prompt) is expected


def test_hostile_texts_end_soon() -> None:
    """Deep nesting, endless brackets and long strings are no calls, and nothing worse."""
    for name, text in [
        ("hermes", "<tool_call>" + "[" * 100_000),
        ("hermes", '<tool_call>{"name": "f", "arguments": ' + '{"a":' * 50_000),
        ("llama3-json", "{" * 100_000),
        ("pythonic", "[" + "(" * 60_000 + ")" * 60_000 + "]"),
        ("pythonic", "[f(n=" + "-" * 50_000 + "1)]"),
        ("pythonic", "[f(n=" + "9" * 20_000 + ")]"),
        ("mistral", "[TOOL_CALLS]" + "x" * 100_000),
        ("hermes", "<tool_call>" * 2_000),
    ]:
        assert parse(None, name, text) == ("", text, [])
    with pytest.raises(ValueError, match="more than"):
        read_json('"' + "x" * MAX_ARGUMENT_CHARS + '"')


def test_markers_must_be_told_apart() -> None:
    for wrong in (("<a>", "<a>b"), ("",)):
        with pytest.raises(ValueError, match="must not be empty or begin another"):
            Markers(*wrong)

"""Outputs that may or must have calls: what the grammar of each format takes, its parser reads."""

from __future__ import annotations

import json

import pytest

from headrace.grammar.spec import Grammar, json_schema
from headrace.parsers import Function, Start, output_parser, tool_parsers
from headrace.parsers.tools.format import literal
from headrace.parsers.tools.guide import answer_rule, call_grammar

llguidance = pytest.importorskip("llguidance")

DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
FUNCTION = Function(
    "f",
    {
        "type": "object",
        "properties": {"a": DIGIT},
        "required": ["a"],
        "additionalProperties": False,
    },
)
# A call as each format writes it, with VALUE for the argument.
CALLS = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": VALUE}}\n</tool_call>',
    "ernie-x1": '<tool_call>\n{"name": "f", "arguments": {"a": VALUE}}\n</tool_call>',
    "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=a>\nVALUE\n</parameter>\n</function>\n"
    "</tool_call>",
    "llama3-json": '{"name": "f", "parameters": {"a": VALUE}}',
    "pythonic": "[f(a=VALUE)]",
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": VALUE}}]',
    "mistral-v11": '[TOOL_CALLS]f[ARGS]{"a": VALUE}',
    "glm-45": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>",
    "harmony": '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": VALUE}',
}
FIRST = ("llama3-json", "pythonic", "harmony")  # calls come first in an output
PLAIN = {"harmony": "<|channel|>final<|message|>Just words."}


def accepts(
    name: str, text: str, required: bool, several: bool = True, answer: str | None = None
) -> bool:
    grammar = call_grammar(
        tool_parsers.get(name),
        [FUNCTION],
        literal,
        required=required,
        several=several,
        answer=answer,
    )
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar.text))
    assert not matcher.is_error(), matcher.get_error()
    return bool(matcher.consume_tokens(list(text.encode()))) and matcher.is_accepting()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_calls_that_may_come_keep_to_the_schema(name: str) -> None:
    before = "" if name in FIRST else "Let me see.\n"
    text = before + CALLS[name].replace("VALUE", "7")
    parser = output_parser(None, tool_parsers.get(name), start=Start.CONTENT, functions=[FUNCTION])
    read = parser.push(text) + parser.finish()
    assert [json.loads(call.function.arguments) for call in read.tool_calls] == [{"a": 7}]
    assert accepts(name, text, required=False)
    assert accepts(name, PLAIN.get(name, "Just words."), required=False)
    for wrong in ("70", "true", "[7]"):
        assert not accepts(name, before + CALLS[name].replace("VALUE", wrong), required=False)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_calls_that_must_come(name: str) -> None:
    assert accepts(name, CALLS[name].replace("VALUE", "7"), required=True)
    assert not accepts(name, CALLS[name].replace("VALUE", "70"), required=True)
    assert not accepts(name, PLAIN.get(name, "Just words."), required=True)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_one_call_at_most(name: str) -> None:
    before = "" if name in FIRST else "Let me see.\n"
    call = CALLS[name].replace("VALUE", "7")
    for text, required in ((before + call, False), (call, True)):
        assert accepts(name, text, required, several=False), (text, required)
        assert not accepts(name, text + call, required, several=False), (text, required)
    assert accepts(name, PLAIN.get(name, "Just words."), False, several=False)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"llama3-json"}))
def test_calls_or_an_answer_of_a_schema(name: str) -> None:
    notes: list[str] = []
    schema = {"type": "object", "properties": {"name": DIGIT}, "required": ["name"]}
    calls = tool_parsers.get(name)
    rule = answer_rule(json_schema({**schema, "uniqueItems": True}, lenient=True), calls, notes)
    assert notes == ["uniqueItems at /"]
    call = CALLS[name].replace("VALUE", "7")
    before = "<|channel|>final<|message|>" if name == "harmony" else ""
    for text, good in (
        (call, True),
        (before + '{"name": 7}', True),
        (CALLS[name].replace("VALUE", "70"), False),
        (before + '{"name": 70}', False),
        (before + "Just words.", False),
        (before + '{"name": 7}' + call, False),
    ):
        assert accepts(name, text, required=False, answer=rule) is good, text
    parser = output_parser(None, calls, start=Start.CONTENT, functions=[FUNCTION], guided=True)
    read = parser.push(before + '{"name": 7}') + parser.finish()
    assert (read.content, list(read.tool_calls)) == ('{"name": 7}', [])


def test_answers_that_cannot_be_told_from_calls() -> None:
    for name, answer in (
        ("llama3-json", json_schema({"type": "object"})),
        ("hermes", Grammar("regex", "a")),
    ):
        with pytest.raises(ValueError, match="can't be combined"):
            answer_rule(answer, tool_parsers.get(name), [])

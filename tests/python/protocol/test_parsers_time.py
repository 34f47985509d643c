"""The time that parsers take grows as the length of the text does, whatever it is made of."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from headrace.parsers import Function, output_parser, reasoning_parsers, tool_parsers

FUNCTIONS = [Function("f", {"type": "object", "properties": {"a": {"type": "string"}}})]
PIECE = 24  # characters
LENGTH = 16_000
HOSTILE: dict[str, Callable[[int], str]] = {
    "spaces": lambda n: " " * n,
    "words": lambda n: "word " * (n // 5),
    "braces": lambda n: "{" * n,
    "spaces in a list": lambda n: "[" + " " * n,
    "spaces behind a tag": lambda n: "<|python_tag|>" + " " * n,
    "spaces in a head": lambda n: "<|start|>" + " " * n,
    "heads": lambda n: "<|start|>a<|message|>" * (n // 21),
    "arguments": lambda n: "<|channel|>commentary to=functions.f<|message|>" + "{" * n,
    "openings": lambda n: "<tool_call>" * (n // 11),
    "openings in a string": lambda n: '<tool_call>{"name":"' + "<tool_call>" * (n // 11),
    "openings of lists": lambda n: "[TOOL_CALLS]" * (n // 12),
    "responses": lambda n: "<response>" * (n // 10) + "<tool_call>",
    "responses and calls": lambda n: "<response></response><tool_call>" * (n // 32),
    "almost a marker": lambda n: "<tool_cal" * (n // 9),
    "spaces in a thought": lambda n: "<think>" + "\n" * n,
    "thoughts": lambda n: "<think>a</think>" * (n // 16),
    "calls": lambda n: '<tool_call>{"name":"f"}</tool_call>' * (n // 35),
    "calls of glm": lambda n: "<tool_call>f</tool_call>" * (n // 24),
    "calls of qwen": lambda n: "<function=f></function>" * (n // 23),
    "calls of mistral": lambda n: "[TOOL_CALLS]f{}" * (n // 15),
    "arguments of glm": lambda n: (
        "<tool_call>f" + "<arg_key>a</arg_key><arg_value>1</arg_value>" * (n // 44) + "</tool_call>"
    ),
    "ends in a value of glm": lambda n: (
        "<tool_call>f<arg_key>a</arg_key><arg_value>" + "</tool_call>" * (n // 12)
    ),
    "arguments of qwen": lambda n: (
        "<tool_call><function=f>" + "<parameter=a>1</parameter>" * (n // 26) + "</function>"
    ),
    "ends in a value of qwen": lambda n: (
        "<tool_call><function=f><parameter=a>" + "</function>" * (n // 11)
    ),
    "ends and spaces in a value": lambda n: (
        "<tool_call><function=f><parameter=a></function>" + "\n" * n
    ),
    "openings in a value": lambda n: (
        "<tool_call><function=f><parameter=a>" + "\n<parameter=x" * (n // 13) + "></function>"
    ),
    "others' parameters in a value": lambda n: (
        "<tool_call><function=f><parameter=a>" + "\n<parameter=x></function>" * (n // 25)
    ),
}
PARSERS = [
    *((None, name) for name in tool_parsers.names()),
    ("gpt-oss", None),
    ("glm-45", None),
]


def seconds(reasoning: str | None, calls: str | None, text: str, piece: int) -> float:
    parser = output_parser(
        None if reasoning is None else reasoning_parsers.get(reasoning),
        None if calls is None else tool_parsers.get(calls),
        functions=FUNCTIONS,
    )
    start = time.thread_time()
    for place in range(0, len(text), piece):
        parser.push(text[place : place + piece])
    parser.finish()
    return time.thread_time() - start


@pytest.mark.parametrize(("reasoning", "calls"), PARSERS, ids=str)
def test_time_grows_as_length(reasoning: str | None, calls: str | None) -> None:
    for name, make in HOSTILE.items():
        for piece in (PIECE, 1 << 30):
            short, long = make(LENGTH), make(4 * LENGTH)
            for attempt in range(3):
                second = seconds(reasoning, calls, long, piece)
                if second < 0.05:  # what takes little tells nothing
                    break
                first = seconds(reasoning, calls, short, piece)
                if second < 9 * first:  # 16 times as long if it were quadratic
                    break
                assert attempt < 2, (name, piece, first, second)

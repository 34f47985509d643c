"""FastDeploy's own tests of its parsers, run on ours.

HEADRACE_FASTDEPLOY_SOURCE names a checkout of FastDeploy 2.x; without it these tests are skipped.
Its classes are stood in for by adapters: what a test passes as the text so far is read first, and
what it passes as new then gives the increment."""

from __future__ import annotations

import os
import sys
import types
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.parsers import (
    OutputParser,
    Parsed,
    Start,
    output_parser,
    reasoning_parsers,
    tool_parsers,
)
from headrace.parsers.registry import Parsers

SOURCE = Path(os.environ.get("HEADRACE_FASTDEPLOY_SOURCE", ""))
FILES = (
    "tests/reasoning/test_reasoning_parser.py",
    "tests/entrypoints/openai/tool_parsers/test_ernie_x1_tool_parser.py",
    "tests/entrypoints/openai/tool_parsers/test_ernie_45_vl_thinking_tool_parser.py",
)
pytestmark = pytest.mark.skipif(
    not os.environ.get("HEADRACE_FASTDEPLOY_SOURCE"), reason="HEADRACE_FASTDEPLOY_SOURCE is not set"
)

# What is left out, and why.
BROKEN = "a call that can't be read stays in the text; there it is a call that isn't counted"
WHOLE = "a call comes when it is complete; there name and arguments come in pieces"
PIECE = "the test passes a piece that doesn't follow from the text so far"
INNER = "it reads or sets what their parser keeps between two pieces, or replaces its JSON reader"
PROMPT = "whether the prompt has begun to think, the caller says: output_parser(start=...)"
LEFT_OUT = {
    "test_extract_tool_calls_partial_arguments": BROKEN,
    "test_extract_tool_calls_invalid_json": BROKEN,
    "test_extract_tool_calls_exception": "it makes the json module fail",
    "test_streaming_new_toolcall_and_name": WHOLE,
    "test_streaming_partial_arguments": WHOLE,
    "test_streaming_complete_arguments_and_end": WHOLE,
    "test_streaming_tool_with_reasoning": WHOLE,
    "TestErnie45VLThinkingReasoningParser.test_streaming_with_reasoning_and_tool": "an increment "
    "without anything new is None; there it has an empty reasoning",
    "TestErnieVLReasoningParser.test_extract_reasoning_content_stream": "the same",
    "TestErnie45VLThinkingReasoningParser.test_streaming_with_reasoning_and_illegal_tool": PIECE,
    "TestErnie45VLThinkingReasoningParser.test_streaming_no_reasoning_previous_tool": PIECE,
    # Those of release 2.6.
    "TestErnieX1ReasoningParser.test_extract_reasoning_content_streaming": PIECE,
    "test_missing_token": "markers are read as text, whatever the vocabulary has",
    "test_get_model_status": PROMPT,
    "test_find_last_special_token": PROMPT,
    "test_other_status_streaming": "no prompt ends within a call",
    "test_other_status_non_streaming": "the same",
    "test_init_raises_without_tokenizer": "a tool parser takes no tokenizer",
    "test_init_sets_tokens_and_ids": INNER,
    "test_streaming_new_tool_call_single_token": INNER,
    "test_streaming_close_no_prev_tool_call": INNER,
    "test_streaming_close_with_remaining_diff": INNER,
    "test_streaming_close_no_arguments": INNER,
    "test_streaming_else_branch": INNER,
    "test_streaming_json_decode_error": INNER,
    "test_streaming_first_arguments_no_regex_match": INNER,
    "test_streaming_empty_dict_prev_arguments_not_reset": INNER,
    "test_streaming_arguments_reset_mid_call": INNER,
    "test_streaming_prev_tool_call_arr_append": INNER,
    "test_streaming_end_token_in_delta": WHOLE,
    "test_streaming_new_tool_call_multi_tokens": WHOLE,
    "test_streaming_continue_tool_call_with_name": WHOLE,
    "test_streaming_close_with_empty_dict_arguments": WHOLE,
    "test_streaming_empty_arguments_with_outer_brace_in_same_token": WHOLE,
    "test_streaming_first_arguments_with_regex_match": WHOLE,
    "test_streaming_first_arguments_delta_not_in_json": WHOLE,
    "test_streaming_empty_dict_arguments_not_skipped": WHOLE,
    "test_streaming_incremental_arguments_incomplete": WHOLE,
    "test_streaming_incremental_arguments_complete_json": WHOLE,
    "test_streaming_full_flow": WHOLE,
    "test_streaming_empty_arguments_full_flow": WHOLE,
    "test_streaming_multiple_tool_calls": WHOLE,
    "test_streaming_text_after_completed_tool_call": "space behind a call is left out",
}
# What release 2.6 passes as model_status: where the prompt has left the model.
STARTS = {
    "think_start": (Start.THINKING, ""),
    "think_end": (Start.CONTENT, ""),
    "response_start": (Start.CONTENT, "<response>"),
}


@dataclass
class DeltaMessage:
    reasoning_content: str | None = None
    content: str | None = None
    tool_calls: Any = None


@dataclass
class Extracted:
    tools_called: bool
    tool_calls: Any
    content: str | None


def delta(parsed: Parsed) -> DeltaMessage | None:
    if not parsed:
        return None
    return DeltaMessage(parsed.reasoning or None, parsed.content or None, parsed.tool_calls or None)


class ReasoningParser:
    """What FastDeploy's abstract class offers; `name` picks ours."""

    name = ""

    def __init__(self, tokenizer: Any) -> None:
        self.vocab = tokenizer.get_vocab()
        self.think_end_token_id = self.vocab.get("</think>")

    def new(self, status: str | None) -> OutputParser:
        start, begun = STARTS[status] if status else (None, "")
        parser = output_parser(reasoning_parsers.get(self.name), None, start=start)
        parser.push(begun)
        return parser

    def extract_reasoning_content(
        self, model_output: str, request: Any, model_status: str | None = None
    ) -> tuple[str, str]:
        parser = self.new(model_status)
        parsed = parser.push(model_output) + parser.finish()
        return parsed.reasoning, parsed.content

    def extract_reasoning_content_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        *ids: Any,
        model_status: str | None = None,
        **more: Any,
    ) -> DeltaMessage | None:
        parser = self.new(model_status)
        parser.push(previous_text)
        return delta(parser.push(delta_text))


class ToolParser:
    name = ""

    def __init__(self, tokenizer: Any) -> None: ...

    def new(self) -> OutputParser:
        return output_parser(None, tool_parsers.get(self.name))

    def extract_tool_calls(self, model_output: str, request: Any) -> Extracted:
        parser = self.new()
        parsed = parser.push(model_output) + parser.finish()
        return Extracted(bool(parsed.tool_calls), parsed.tool_calls, parsed.content)

    def extract_tool_calls_streaming(
        self, previous_text: str, current_text: str, delta_text: str, *more: Any
    ) -> DeltaMessage | None:
        parser = self.new()
        parser.push(previous_text)
        return delta(parser.push(delta_text))


class Request:
    def __init__(self, **values: Any) -> None: ...

    def model_dump(self) -> dict[str, Any]:
        return {}


class ReasoningParserManager:
    """On the registry that ours have."""

    own: Parsers[Any] = Parsers(
        "reasoning parser", {}, {}, lambda p: isinstance(p, type) and issubclass(p, ReasoningParser)
    )
    reasoning_parsers: dict[str, Any] = {}  # noqa: RUF012

    @classmethod
    def register_module(cls, module: Any, name: str, force: bool = True) -> None:
        cls.own.register(name, module, force=force)

    @classmethod
    def get_reasoning_parser(cls, name: str) -> Any:
        return cls.own.get(name)


def adapted(base: type, name: str) -> type:
    return type(name, (base,), {"name": name})


def stand_ins() -> dict[str, types.ModuleType]:
    vl = adapted(ReasoningParser, "ernie-45-vl")
    thinking = adapted(ReasoningParser, "ernie-45-vl-thinking")
    x1 = adapted(ReasoningParser, "ernie-x1")
    names: dict[str, dict[str, Any]] = {
        "fastdeploy": {},
        "fastdeploy.entrypoints": {},
        "fastdeploy.entrypoints.openai": {},
        "fastdeploy.entrypoints.openai.protocol": {
            "ChatCompletionRequest": Request,
            "DeltaMessage": DeltaMessage,
        },
        "fastdeploy.reasoning": {
            "ReasoningParser": ReasoningParser,
            "ReasoningParserManager": ReasoningParserManager,
        },
        "fastdeploy.reasoning.ernie_45_vl_thinking_reasoning_parser": {
            "Ernie45VLThinkingReasoningParser": thinking
        },
        "fastdeploy.reasoning.ernie_vl_reasoning_parsers": {"ErnieVLReasoningParser": vl},
        "fastdeploy.reasoning.ernie_x1_reasoning_parsers": {"ErnieX1ReasoningParser": x1},
        "fastdeploy.entrypoints.openai.tool_parsers": {},
        "fastdeploy.entrypoints.openai.tool_parsers.ernie_x1_tool_parser": {
            "ErnieX1ToolParser": adapted(ToolParser, "ernie-x1")
        },
        "fastdeploy.entrypoints.openai.tool_parsers.ernie_45_vl_thinking_tool_parser": {
            "Ernie45VLThinkingToolParser": adapted(ToolParser, "ernie-45-vl-thinking")
        },
    }
    modules = {}
    for name, values in names.items():
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(values)
    return modules


@pytest.mark.parametrize("path", FILES)
def test_fastdeploys_tests(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in stand_ins().items():
        monkeypatch.setitem(sys.modules, name, module)
    code = compile((SOURCE / path).read_text(encoding="utf-8"), path, "exec")
    own = types.ModuleType("fastdeploys_tests")
    exec(code, vars(own))
    tests = unittest.TestLoader().loadTestsFromModule(own)
    ran, wrong = 0, []
    for test in each(tests):
        kind, method = type(test).__name__, test._testMethodName
        if method in LEFT_OUT or f"{kind}.{method}" in LEFT_OUT:
            continue
        result = test.run()
        ran += 1
        wrong += [f"{case}: {text[-600:]}" for case, text in [*result.failures, *result.errors]]
    assert not wrong, "\n".join(wrong)
    assert ran >= 4


def each(tests: Any) -> Any:
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test

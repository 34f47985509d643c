"""Which parsers an LLM has: by name, or by its chat template."""

from __future__ import annotations

import os
import runpy

from headrace.options.engine_args import EngineArgs
from headrace.parsers.output_plan import Parsing
from headrace.parsers.reasoning.format import ReasoningFormat
from headrace.parsers.registry import reasoning_parsers, tool_parsers
from headrace.parsers.tools.format import ToolFormat
from headrace.quoting import checked_text, quoted
from headrace.text.tokenizer import Tokenizer

# What a template that shows one of these is about; the first one found counts.
_REASONING_SIGNS = (
    ("<|channel|>", "gpt-oss"),
    ("[THINK]", "mistral"),
    ("<response>", "ernie-x1"),
    ("<tool_list>", "ernie-45-vl-thinking"),
    ("<arg_key>", "glm-45"),
    ("<｜Assistant｜>", "deepseek-r1"),
    ("Assistant: <think>", "ernie-45-vl"),
    ("<think>", "qwen3"),
)
_TOOL_SIGNS = (
    ("<|channel|>", "harmony"),
    ("<arg_key>", "glm-45"),
    ("<function=", "qwen3-coder"),
    ("[ARGS]", "mistral-v11"),
    ("[TOOL_CALLS]", "mistral"),
    ("<response>", "ernie-x1"),
    ("<tool_list>", "ernie-45-vl-thinking"),
    ("<tool_call>", "hermes"),
    ("[func_name1(", "pythonic"),
    ("Environment: ipython", "llama3-json"),
)


def choose_parsers(args: EngineArgs, tokenizer: Tokenizer | None, template: str | None) -> Parsing:
    """The parsers that reasoning_parser and tool_call_parser name, or "auto" finds.

    template: the caller's, instead of the model's own. Raises ValueError for an unknown name.
    """
    if args.tool_parser_plugin is not None:
        _run_plugin(args.tool_parser_plugin)
    shown = template
    if shown is None and tokenizer is not None:
        shown = "\n".join(tokenizer.chat_templates.values())
    reasoning = calls = None
    if args.reasoning_parser is not None:
        reasoning = _reasoning(args.reasoning_parser, shown or "")
    if args.tool_call_parser is not None:
        calls = _calls(args.tool_call_parser, shown or "")
    if tokenizer is None and (reasoning is not None or calls is not None):
        raise ValueError("parsers need a tokenizer, and the model folder has none")
    return Parsing(
        reasoning,
        calls,
        tokenizer,
        compact=args.guided_decoding_disable_any_whitespace,
        guided=args.guided_decoding_backend != "off",
    )


def _reasoning(name: str, template: str) -> ReasoningFormat | None:
    found = _found(name, _REASONING_SIGNS, template)
    try:
        return None if found is None else reasoning_parsers.get(found)
    except KeyError as error:
        raise ValueError(f"reasoning_parser: {error.args[0]}") from None


def _calls(name: str, template: str) -> type[ToolFormat] | None:
    found = _found(name, _TOOL_SIGNS, template)
    try:
        return None if found is None else tool_parsers.get(found)
    except KeyError as error:
        raise ValueError(f"tool_call_parser: {error.args[0]}") from None


def _found(name: str, signs: tuple[tuple[str, str], ...], template: str) -> str | None:
    if checked_text(name, "the name of a parser") != "auto":
        return name
    return next((parser for sign, parser in signs if sign in template), None)


def _run_plugin(path: str | os.PathLike[str]) -> None:
    """Raises ValueError with what is wrong with the file."""
    try:
        runpy.run_path(os.fspath(path))
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"tool_parser_plugin {quoted(os.fspath(path))}: {what:.200}") from error

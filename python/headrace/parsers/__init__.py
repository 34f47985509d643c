"""Takes outputs apart: what a model thinks, what it says, and the functions it calls.

LLM does it for `reasoning_parser=` and `tool_call_parser=`. By hand:

    parser = output_parser(reasoning_parsers.get("qwen3"), tool_parsers.get("hermes"))
    for text in pieces:
        print(parser.push(text))
    print(parser.finish())
"""

from headrace.parsers.create import output_parser
from headrace.parsers.output_parser import OutputParser, Parsed
from headrace.parsers.reasoning.format import ReasoningFormat
from headrace.parsers.reasoning.think_tags import Start
from headrace.parsers.registry import reasoning_parsers, tool_parsers
from headrace.parsers.tool_call import FunctionCall, ToolCall
from headrace.parsers.tools.format import Function, Reading, ToolFormat

__all__ = [
    "Function",
    "FunctionCall",
    "OutputParser",
    "Parsed",
    "Reading",
    "ReasoningFormat",
    "Start",
    "ToolCall",
    "ToolFormat",
    "output_parser",
    "reasoning_parsers",
    "tool_parsers",
]

"""From the names of parsers to the machine that reads an output."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.parsers.harmony import Harmony
from headrace.parsers.output_parser import OutputParser
from headrace.parsers.reasoning.format import ReasoningFormat
from headrace.parsers.reasoning.think_tags import Start
from headrace.parsers.registry import HarmonyCalls
from headrace.parsers.stage import Stage
from headrace.parsers.tools.call_stage import CallStage
from headrace.parsers.tools.format import Function, ToolFormat


def output_parser(
    reasoning: ReasoningFormat | None,
    calls: type[ToolFormat] | None,
    *,
    start: Start | None = None,
    functions: Sequence[Function] = (),
    guided: bool = False,
) -> OutputParser:
    """A fresh parser for one output.

    reasoning, calls: what to take out of it; None: that stays in the content.
    start: where the output begins; None: as the reasoning parser thinks.
    functions: the ones that may be called, where they are known.
    guided: calls are guided by the functions' schemas: their arguments come as they are written.
    """
    channels = reasoning is not None and reasoning.channels
    if channels or calls is HarmonyCalls:
        harmony = Harmony(
            split_reasoning=channels,
            split_calls=calls is HarmonyCalls,
            thinking=start is Start.THINKING,
            guided=[function.name for function in functions] if guided else (),
        )
        if calls is None or calls is HarmonyCalls:
            return OutputParser([harmony])
        return OutputParser([harmony, _call_stage(calls, functions, guided)])
    stages: list[Stage] = []
    if reasoning is not None:
        stages.append(reasoning.thinking(start or reasoning.start, calls))
    if calls is not None:
        stages.append(_call_stage(calls, functions, guided))
    if reasoning is not None and reasoning.content is not None and reasoning.has_content(calls):
        stages.append(reasoning.content())
    return OutputParser(stages)


def _call_stage(calls: type[ToolFormat], functions: Sequence[Function], guided: bool) -> CallStage:
    form = calls(functions)
    form.guided = guided
    return CallStage(form)

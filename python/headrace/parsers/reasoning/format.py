"""How a model writes what it thinks: what a reasoning parser has to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.parsers import harmony
from headrace.parsers.reasoning.ernie import (
    RESPONSE,
    RESPONSE_END,
    TOOL_CALL,
    NoLeadingCalls,
    ResponseTags,
)
from headrace.parsers.reasoning.think_tags import Start, ThinkTags
from headrace.parsers.stage import Stage
from headrace.parsers.tools.format import ToolFormat


@dataclass(slots=True, frozen=True)
class ReasoningFormat:
    """Thinking between `begin` and `end`.

    start: where an output begins if neither the prompt nor the caller says.
    trim: without the newlines around the reasoning and before the content.
    closing: what is forced on a model that has thought enough.
    channels: it is the format of headrace.parsers.harmony.
    call: where a call begins; in thinking that has no end, what a model says begins there.
    turn: what the model's turn begins with; "": what came before may say where an output begins.
    others: more strings of the format that may be special tokens.
    content: makes the stage that picks the content out of what follows the thinking.
    content_with_calls: that stage is needed where a tool parser has taken the calls out, too.
    """

    begin: str = "<think>"
    end: str = "</think>"
    start: Start = Start.THINKING
    trim: bool = True
    closing: str = "</think>"
    others: tuple[str, ...] = ()
    content: Callable[[], Stage] | None = None
    content_with_calls: bool = True
    channels: bool = False
    turn: str = ""
    call: str = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """All strings of the format that may be special tokens."""
        return (self.begin, self.end, *self.others)

    def start_after(self, text: str) -> Start:
        """Where an output begins behind this text: the last marker in it decides."""
        text = text.rpartition(self.turn)[2] if self.turn else text
        begin, end = text.rfind(self.begin), text.rfind(self.end)
        if begin == end:
            return self.start
        return Start.THINKING if begin > end else Start.CONTENT

    def has_content(self, calls: type[ToolFormat] | None) -> bool:
        """Whether the stage for the content is needed beside this tool parser."""
        return calls is None or self.content_with_calls

    def call_in(self, calls: type[ToolFormat] | None) -> str:
        """What may end the thinking beside `end`, with this tool parser; "": nothing."""
        return self.call if calls is not None and self.call in calls.markers else ""

    def thinking(self, start: Start, calls: type[ToolFormat] | None = None) -> Stage:
        """The stage that takes the reasoning out."""
        return ThinkTags(self.begin, self.end, start, trim=self.trim, call=self.call_in(calls))


REASONING_FORMATS: dict[str, ReasoningFormat] = {
    "ernie-45-vl": ReasoningFormat(trim=False),
    "ernie-45-vl-thinking": ReasoningFormat(
        trim=False, content=NoLeadingCalls, content_with_calls=False
    ),
    "ernie-x1": ReasoningFormat(
        trim=False,
        closing="\n</think>\n\n",
        others=(RESPONSE, RESPONSE_END),
        content=ResponseTags,
    ),
    "qwen3": ReasoningFormat(start=Start.EITHER, call=TOOL_CALL),
    "deepseek-r1": ReasoningFormat(),
    "glm-45": ReasoningFormat(start=Start.EITHER, call=TOOL_CALL),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]", Start.EITHER, closing="[/THINK]"),
    "gpt-oss": ReasoningFormat(
        harmony.ANALYSIS,
        harmony.END,
        Start.EITHER,
        closing=harmony.ANSWER,
        others=harmony.MARKERS,
        channels=True,
        turn=harmony.START,
    ),
}

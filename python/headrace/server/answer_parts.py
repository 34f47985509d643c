"""What the increments of an answer add to which of its parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from headrace import RequestOutput
from headrace.protocol.chat_answer import tool_calls

Kind = Literal["reasoning", "text", "tool"]


@dataclass(frozen=True, slots=True)
class PartDelta:
    """A piece of a part.

    kind and index name the part; index tells tool calls apart, and is 0 else. text: what is added,
    of a tool call to its arguments. call_id, name: of a tool call, in its first piece.
    """

    kind: Kind
    text: str
    index: int = 0
    call_id: str | None = None
    name: str | None = None


def part_deltas(update: RequestOutput) -> Iterator[PartDelta]:
    part = update.outputs
    if part.reasoning_content:
        yield PartDelta("reasoning", part.reasoning_content)
    if part.text:
        yield PartDelta("text", part.text)
    for place, call in enumerate(tool_calls(part)):
        function: dict[str, Any] = call.get("function") or {}
        yield PartDelta(
            "tool",
            function.get("arguments") or "",
            call.get("index", place),
            call.get("id"),
            function.get("name"),
        )


def arguments_object(arguments: str) -> dict[str, Any]:
    """Of a call that was cut off, or is nested too deeply: nothing."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(slots=True)
class Counts:
    """Tokens of an answer so far."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0
    reasoning: int = 0
    images: int = 0  # of the prompt's
    videos: int = 0

    def add(self, update: RequestOutput) -> None:
        self.prompt = max(self.prompt, len(update.prompt_token_ids))
        self.cached = max(self.cached, update.num_cached_tokens)
        self.images = max(self.images, update.num_input_image_tokens)
        self.videos = max(self.videos, update.num_input_video_tokens)
        self.generated += len(update.outputs.token_ids)
        self.reasoning = max(self.reasoning, update.outputs.reasoning_token_num)

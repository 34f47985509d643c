"""Answers of /v1/messages, built from increments, with the events that tell of each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from headrace import RequestOutput
from headrace.server.answer_parts import Counts, PartDelta, arguments_object, part_deltas

Event = dict[str, Any]


class MessageBuilder:
    """The "message" object of one request. `start`, `feed` and `finish` give the events that a
    stream sends; `message` is the object as it stands."""

    def __init__(self, *, id: str, model: str) -> None:
        self._counts = Counts()
        self._part: tuple[str, int] | None = None  # kind and index of the open block
        self._arguments = ""  # of the open block, if it is a call
        self.message: dict[str, Any] = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(),
        }

    def start(self, first: RequestOutput) -> Iterator[Event]:
        """`first`: the first increment, which knows the prompt's tokens; it is fed later."""
        counts = Counts()
        counts.add(first)
        counts.generated = counts.reasoning = 0
        usage = _usage(counts)
        yield {"type": "message_start", "message": {**self.message, "usage": usage}}

    def feed(self, update: RequestOutput) -> Iterator[Event]:
        self._counts.add(update)
        for delta in part_deltas(update):
            if self._part != (delta.kind, delta.index):
                yield from self._close()
                yield self._open(delta)
            yield from self._extend(delta)
        self._end(update)

    def finish(self) -> Iterator[Event]:
        yield from self._close()
        self.message["usage"] = self._usage()
        names = ("stop_reason", "stop_sequence")
        delta = {name: self.message[name] for name in names}
        yield {"type": "message_delta", "delta": delta, "usage": self._usage()}
        yield {"type": "message_stop"}

    def _open(self, delta: PartDelta) -> Event:
        self._part, self._arguments = (delta.kind, delta.index), ""
        block: dict[str, Any]
        if delta.kind == "tool":
            call_id = delta.call_id or f"toolu_{uuid.uuid4().hex}"
            block = {"type": "tool_use", "id": call_id, "name": delta.name or "", "input": {}}
        elif delta.kind == "text":
            block = {"type": "text", "text": ""}
        else:
            block = {"type": "thinking", "thinking": "", "signature": ""}
        self.message["content"].append(block)
        return {**self._event("content_block_start"), "content_block": {**block}}

    def _extend(self, delta: PartDelta) -> Iterator[Event]:
        block = self.message["content"][-1]
        if delta.kind == "tool":
            self._arguments += delta.text
            change = {"type": "input_json_delta", "partial_json": delta.text}
        elif delta.kind == "text":
            block["text"] += delta.text
            change = {"type": "text_delta", "text": delta.text}
        else:
            block["thinking"] += delta.text
            change = {"type": "thinking_delta", "thinking": delta.text}
        if delta.text:
            yield {**self._event("content_block_delta"), "delta": change}

    def _close(self) -> Iterator[Event]:
        if self._part is None:
            return
        if self._part[0] == "tool":
            self.message["content"][-1]["input"] = arguments_object(self._arguments)
        self._part = None
        yield self._event("content_block_stop")

    def _end(self, update: RequestOutput) -> None:
        part = update.outputs
        if part.finish_reason is None:
            return
        if part.finish_reason == "length":
            reason = "max_tokens"
        elif any(block["type"] == "tool_use" for block in self.message["content"]):
            reason = "tool_use"
        elif isinstance(part.stop_reason, str):
            reason = "stop_sequence"
            self.message["stop_sequence"] = part.stop_reason
        else:
            reason = "end_turn"
        self.message["stop_reason"] = reason

    def _event(self, kind: str) -> Event:
        return {"type": kind, "index": len(self.message["content"]) - 1}

    def _usage(self) -> dict[str, Any]:
        return _usage(self._counts)


def _usage(counts: Counts) -> dict[str, Any]:
    """Tokens read from the cache are not among Anthropic's input_tokens."""
    return {
        "input_tokens": counts.prompt - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.generated,
    }

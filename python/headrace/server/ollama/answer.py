"""Answers of /api/chat and /api/generate, built from increments."""

from __future__ import annotations

import time
import uuid
from datetime import datetime, timezone
from typing import Any

from headrace import RequestOutput
from headrace.protocol.logprobs import chat_logprobs
from headrace.protocol.timings import Timings
from headrace.server.answer_parts import Counts, PartDelta, arguments_object, part_deltas
from headrace.text.tokenizer import Tokenizer

_NANOSECONDS = 1_000_000  # of a millisecond


class AnswerBuilder:
    """What one request is answered. `feed` and `last` give the objects of a stream, `whole` the
    one object of an answer that comes at once."""

    def __init__(
        self,
        model: str,
        chat: bool,
        *,
        top_logprobs: int = 0,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """chat: of /api/chat, not of /api/generate. tokenizer: the model's."""
        self._model = model
        self._chat = chat
        self._top_logprobs = top_logprobs
        self._tokenizer = tokenizer
        self._begun = time.perf_counter_ns()
        self._counts = Counts()
        self._timings = Timings()
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._call: tuple[PartDelta, list[str]] | None = None  # being written
        self._logprobs: list[Any] = []
        self._reason = "stop"

    def feed(self, update: RequestOutput) -> dict[str, Any] | None:
        """The piece of an increment, if it has anything to say."""
        part = update.outputs
        self._counts.add(update)
        self._timings.note(update.metrics)
        text = thinking = ""
        calls: list[dict[str, Any]] = []
        for delta in part_deltas(update):
            if self._call is not None and self._call[0].index != delta.index:
                calls += self._finished_call()
            if delta.kind == "tool":
                self._extend(delta)
            elif delta.kind == "text":
                text += delta.text
            else:
                thinking += delta.text
        if part.finish_reason is not None:
            calls += self._finished_call()
            self._reason = "length" if part.finish_reason == "length" else "stop"
        found = chat_logprobs(part, self._top_logprobs, self._tokenizer)
        logprobs = found["content"] if found else []
        self._text.append(text)
        self._thinking.append(thinking)
        self._calls += calls
        self._logprobs += logprobs
        if text or thinking or calls or logprobs:
            return self._piece(text, thinking, calls, logprobs)
        return None

    def last(self) -> dict[str, Any]:
        return {**self._piece("", "", [], []), **self._end(self._reason)}

    def whole(self) -> dict[str, Any]:
        text, thinking = "".join(self._text), "".join(self._thinking)
        answer = self._piece(text, thinking, self._calls, self._logprobs)
        return {**answer, **self._end(self._reason)}

    def loaded(self) -> dict[str, Any]:
        """For a request that asks nothing."""
        return {**self._piece("", "", [], []), "done": True, "done_reason": "load"}

    def _extend(self, delta: PartDelta) -> None:
        if self._call is None:
            self._call = (delta, [])
        self._call[1].append(delta.text)

    def _finished_call(self) -> list[dict[str, Any]]:
        if self._call is None:
            return []
        (first, written), self._call = self._call, None
        function = {
            "index": first.index,
            "name": first.name or "",
            "arguments": arguments_object("".join(written)),
        }
        return [{"id": first.call_id or f"call_{uuid.uuid4().hex}", "function": function}]

    def _piece(
        self, text: str, thinking: str, calls: list[dict[str, Any]], logprobs: list[Any]
    ) -> dict[str, Any]:
        said: dict[str, Any] = {"content" if self._chat else "response": text}
        if thinking:
            said["thinking"] = thinking
        if calls:
            said["tool_calls"] = calls
        if self._chat:
            said = {"message": {"role": "assistant", **said}}
        if logprobs:
            said["logprobs"] = logprobs
        return {"model": self._model, "created_at": time_text(time.time()), **said, "done": False}

    def _end(self, reason: str) -> dict[str, Any]:
        counts = self._timings.counts(self._counts.prompt, self._counts.generated)
        return {
            "done": True,
            "done_reason": reason,
            "total_duration": time.perf_counter_ns() - self._begun,
            "load_duration": 0,
            "prompt_eval_count": self._counts.prompt,
            "prompt_eval_duration": round((counts["prompt_ms"] or 0) * _NANOSECONDS),
            "eval_count": self._counts.generated,
            "eval_duration": round((counts["predicted_ms"] or 0) * _NANOSECONDS),
        }


def time_text(seconds: float) -> str:
    """A time since the epoch, in RFC 3339."""
    made = datetime.fromtimestamp(seconds, timezone.utc)
    return made.isoformat(timespec="microseconds").replace("+00:00", "Z")

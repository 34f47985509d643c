"""How fast an answer was, by the engine's clock."""

from __future__ import annotations

from typing import Any

from headrace.llm.outputs import RequestMetrics


class Timings:
    """Of the outputs of one request, from their increments."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._first: float | None = None
        self._last: float | None = None

    def note(self, metrics: RequestMetrics | None) -> None:
        if metrics is None:
            return
        self._started = _earlier(self._started, metrics.inference_start_time)
        self._first = _earlier(self._first, metrics.engine_recv_first_token_time)
        last = metrics.engine_recv_latest_token_time
        self._last = last if self._last is None else max(self._last, last or self._last)

    def counts(self, prompt: int, completion: int) -> dict[str, Any]:
        """llama.cpp's fields; null: there was too little to measure. The first token's time is the
        prompt's."""
        prompt_ms = _between(self._started, self._first)
        later_ms = _between(self._first, self._last)
        return {
            "prompt_n": prompt,
            "prompt_ms": prompt_ms,
            "prompt_per_second": _speed(prompt, prompt_ms),
            "predicted_n": completion,
            "predicted_ms": later_ms,
            "predicted_per_second": _speed(completion - 1, later_ms),
        }


def _earlier(one: float | None, other: float | None) -> float | None:
    return other if one is None or (other is not None and other < one) else one


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else (end - begin) * 1000


def _speed(tokens: int, ms: float | None) -> float | None:
    return tokens * 1000 / ms if ms and tokens > 0 else None

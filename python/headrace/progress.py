"""The progress bar of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# What a stream raises that is closed, a broken pipe, full, missing, or can't encode the bar.
_STREAM_ERRORS = (OSError, ValueError, AttributeError)
# Fits 80 columns with a bar of 10, thousands of requests and hours to go.
_FORMAT = "Prompts: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class Progress:
    """Finished requests, and the speed of their prompt and output tokens so far.

    A bar that can't be written any more is dropped: it costs no call its results.
    """

    def __init__(self, total: int, enabled: bool) -> None:
        self._start = time.monotonic()
        self._shown = 0.0
        self._bar: Any = None
        if enabled:
            self._try(lambda: self._open(total))

    def _open(self, total: int) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(
            total=total,
            bar_format=_FORMAT,
            dynamic_ncols=True,
            postfix=_speeds(0.0, 0.0),
        )

    def update(self, finished: int, input_tokens: int, output_tokens: int) -> None:
        """`finished`: how many more requests; the tokens computed since the start of the call."""
        if self._bar is None:
            return
        now = time.monotonic()
        if finished or now - self._shown > 0.2:
            elapsed = max(now - self._start, 1e-6)
            speeds = _speeds(input_tokens / elapsed, output_tokens / elapsed)
            self._try(lambda: self._show(finished, speeds, now))

    def close(self) -> None:
        if self._bar is not None:
            self._try(self._bar.close)

    def _show(self, finished: int, speeds: str, now: float) -> None:
        self._bar.set_postfix_str(speeds, refresh=False)
        self._bar.update(finished)
        if now - self._shown > 0.2:
            self._bar.refresh()
            self._shown = now

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except _STREAM_ERRORS:
            if self._bar is not None:
                self._bar.disable = True  # or it tries again when it is collected
            self._bar = None


def _speeds(input_speed: float, output_speed: float) -> str:
    return f"in {_number(input_speed)}, out {_number(output_speed)} tok/s"


def _number(value: float) -> str:
    """At most 5 characters."""
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"

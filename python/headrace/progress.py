"""The progress bar of a call."""

from __future__ import annotations

import time
from typing import Any

# Fits 80 columns with a bar of 10, thousands of requests and hours to go.
_FORMAT = "Prompts: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class Progress:
    """Finished requests, and the speed of their prompt and output tokens so far."""

    def __init__(self, total: int, enabled: bool) -> None:
        self._start = time.monotonic()
        self._shown = 0.0
        self._bar: Any = None
        if enabled:
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
            self._bar.set_postfix_str(speeds, refresh=False)
            self._bar.update(finished)
            if now - self._shown > 0.2:
                self._bar.refresh()
                self._shown = now

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _speeds(input_speed: float, output_speed: float) -> str:
    return f"in {_number(input_speed)}, out {_number(output_speed)} tok/s"


def _number(value: float) -> str:
    """At most 5 characters."""
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"

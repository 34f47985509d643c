"""The progress bar of a call."""

from __future__ import annotations

import time
from typing import Any


class Progress:
    """Finished requests, and the speed of their prompt and output tokens so far."""

    def __init__(self, total: int, enabled: bool) -> None:
        self._start = time.monotonic()
        self._shown = 0.0
        self._bar: Any = None
        if enabled:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                desc="Processed prompts",
                dynamic_ncols=True,
                postfix=_speeds(0.0, 0.0),
            )

    def update(self, finished: int, input_tokens: int, output_tokens: int) -> None:
        """`finished`: how many more requests; the tokens are counted from the start of the call."""
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
    return f"est. speed input: {input_speed:.2f} toks/s, output: {output_speed:.2f} toks/s"

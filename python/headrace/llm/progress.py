"""The progress bars of a call and of a load."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from headrace.native import LoadProgress

# What a stream raises that is closed, a broken pipe, full, missing, or can't encode the bar.
_STREAM_ERRORS = (OSError, ValueError, AttributeError)
# Fits 80 columns with a bar of 10, thousands of requests and hours to go.
_FORMAT = "Prompts: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
_LOAD_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
_LOAD_STAGES = {"checking": "Checking the model", "weights": "Loading the model"}
_LOAD_DELAY = 0.5  # seconds: a short load needs no bar


class _Stderr:
    """What a bar writes to. It never raises: where a write raises, tqdm keeps the lock of all bars,
    and the next thread with a bar would wait for it forever."""

    def __init__(self) -> None:
        self._stream: Any = sys.stderr
        self.failed = False

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except _STREAM_ERRORS:
            self.failed = True
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except _STREAM_ERRORS:
            self.failed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Bar:
    """A bar that can't be written any more is dropped: it costs no call its results."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stderr = _Stderr()

    def close(self) -> None:
        if self._bar is not None:
            self._try(self._bar.close)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except _STREAM_ERRORS:  # there is no stderr
            self._stderr.failed = True
        if not self._stderr.failed:
            return
        if self._bar is not None:
            self._bar.disable = True  # or it tries again when it is collected
        self._bar = None


class LoadBar(_Bar):
    """How far a load is, on stderr if that is a terminal, or in a notebook; gone when the load has
    ended."""

    def __init__(self) -> None:
        super().__init__()
        self._stage = ""
        self._dropped = False

    @property
    def progress(self) -> LoadProgress | None:
        """What to tell it by; None: nobody sees it."""
        try:
            return self._update if _in_notebook() or sys.stderr.isatty() else None
        except _STREAM_ERRORS:
            return None

    def _update(self, stage: str, bytes_done: int, bytes_total: int) -> None:
        if bytes_total == 0 or self._dropped:
            return
        if stage != self._stage:
            self.close()
            self._stage = stage
            self._try(lambda: self._open(bytes_total))
        if self._bar is not None:
            self._try(lambda: self._bar.update(bytes_done - self._bar.n))
        self._dropped = self._bar is None

    def _open(self, total: int) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(
            file=self._stderr,
            total=total,
            desc=_LOAD_STAGES.get(self._stage, self._stage),
            bar_format=_LOAD_FORMAT,
            unit_scale=True,
            unit_divisor=1024,
            dynamic_ncols=True,
            delay=_LOAD_DELAY,
            leave=False,
        )


def _in_notebook() -> bool:
    """tqdm.auto draws widgets there, or text that Jupyter shows."""
    return "ipykernel" in sys.modules


class Progress(_Bar):
    """Finished requests, and the speed of their prompt and output tokens so far."""

    def __init__(self, total: int, enabled: bool) -> None:
        super().__init__()
        self._start = time.monotonic()
        self._shown = 0.0
        if enabled:
            self._try(lambda: self._open(total))

    def _open(self, total: int) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(
            file=self._stderr,
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

    def _show(self, finished: int, speeds: str, now: float) -> None:
        self._bar.set_postfix_str(speeds, refresh=False)
        self._bar.update(finished)
        if now - self._shown > 0.2:
            self._bar.refresh()
            self._shown = now


def _speeds(input_speed: float, output_speed: float) -> str:
    return f"in {_number(input_speed)}, out {_number(output_speed)} tok/s"


def _number(value: float) -> str:
    """At most 5 characters."""
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"

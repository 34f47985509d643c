"""How far a job is, on a terminal."""

from __future__ import annotations

import contextlib
import time
from typing import Any

_FORMAT = "{percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
_REFRESH_SECONDS = 0.5
# What a stream raises that is closed, a broken pipe, full, missing, or can't encode the bar.
_STREAM_ERRORS = (OSError, ValueError, AttributeError)


class Progress:
    """A bar with finished rows, their rate, tokens per second and the time left; or nothing.

    A bar that can't be written any more is dropped: it costs the job nothing.
    """

    def __init__(self, units: int, shown: bool) -> None:
        """units: of all rows together."""
        self._start = time.monotonic()
        self._rows = self._tokens = 0
        self._bar: Any = None
        if shown:
            with contextlib.suppress(*_STREAM_ERRORS):
                self._bar = self._open(units)

    @staticmethod
    def _open(units: int) -> Any:
        from tqdm import tqdm

        return tqdm(
            total=units,
            bar_format=_FORMAT,
            dynamic_ncols=True,
            mininterval=_REFRESH_SECONDS,
            miniters=1,
        )

    def skip(self, units: int) -> None:
        """A row that was done before; it doesn't count for the rate."""
        if self._bar is not None:
            self._bar.initial += units
            self._bar.n += units

    def finish(self, units: int, tokens: tuple[int, int] = (0, 0)) -> None:
        """A row that has been answered or refused. tokens: of its prompt and its output."""
        self._rows += 1
        self._tokens += sum(tokens)
        if self._bar is None:
            return
        elapsed = max(time.monotonic() - self._start, 1e-6)
        rates = f"{self._rows / elapsed:.1f} rows/s, {self._tokens / elapsed:.0f} tok/s"
        try:
            self._bar.set_postfix_str(f"{self._rows} rows, {rates}", refresh=False)
            self._bar.update(units)
        except _STREAM_ERRORS:
            self._drop()

    def close(self) -> None:
        if self._bar is not None:
            try:
                self._bar.close()
            except _STREAM_ERRORS:
                self._drop()

    def _drop(self) -> None:
        self._bar.disable = True  # or it tries again when it is collected
        self._bar = None

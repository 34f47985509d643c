"""The engine's log on standard error."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


class _LowerCase(logging.Formatter):
    """has_times: lines begin with the time of day, for processes that run for days."""

    def __init__(self, has_times: bool) -> None:
        super().__init__()
        self._has_times = has_times

    def format(self, record: logging.LogRecord) -> str:
        start = f"{self.formatTime(record)} " if self._has_times else ""
        return f"{start}headrace: {record.levelname.lower()}: {record.getMessage()}"


@contextlib.contextmanager
def log_to_stderr(has_times: bool = False) -> Iterator[None]:
    """Shows what HEADRACE_LOG_LEVEL asks for (default: warnings) within the block.

    Failed prompts are left out: the commands report them themselves.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_LowerCase(has_times))
    handler.addFilter(lambda record: record.name != "headrace.failures")
    logger = logging.getLogger("headrace")
    before = logger.level
    # The engine refuses a level that it doesn't know.
    level = os.environ.get("HEADRACE_LOG_LEVEL") or "warning"
    logger.setLevel(_LEVELS.get(level, logging.WARNING))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)

"""Bounds of EngineArgs. Errors name the field, its bounds and the value."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from headrace.options.param_checks import MAX_INT32
from headrace.quoting import quoted


def check_int(
    name: str, value: Any, low: int, high: int = MAX_INT32, optional: bool = False
) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low}, {high}], got {value}")


def check_share(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value}")


def check_gibibytes(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of GiB, got {type(value).__name__}")
    if not 0 <= value <= 1 << 20:
        raise ValueError(f"{name} must be in [0, {1 << 20}] GiB (0: off), got {value}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {allowed}, got {quoted(value)}")


def warn_caller(message: str) -> None:
    """Warns at the line outside this package that has called it."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("headrace."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)

"""The base of the engine's enumerations."""

from __future__ import annotations

from enum import IntEnum


class NamedIntEnum(IntEnum):
    """An IntEnum that prints its name, as in "FinishReason.STOP", on every version of Python."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

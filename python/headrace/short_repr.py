"""Reprs that fit a line or two of a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

_LONGEST_TEXT = 80
_MOST_ITEMS = 8


def short_repr(owner: object, values: Mapping[str, Any]) -> str:
    """ "Type(name=value, ...)"; long texts and lists are cut, with the length of the rest."""
    parts = ", ".join(f"{name}={_short(value)}" for name, value in values.items())
    return f"{type(owner).__name__}({parts})"


def given_fields(owner: Any) -> dict[str, Any]:
    """The fields of a dataclass object that don't have their default value."""
    given = {}
    for item in fields(owner):
        value = getattr(owner, item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if value is not default and value != default:
            given[item.name] = value
    return given


def _short(value: Any) -> str:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:_LONGEST_TEXT]!r}... ({len(value)} characters)"
    if isinstance(value, list) and len(value) > _MOST_ITEMS:
        shown = ", ".join(map(repr, value[:_MOST_ITEMS]))
        return f"[{shown}, ... ({len(value)} in all)]"
    return str(value) if isinstance(value, Enum) else repr(value)

"""Calls written as JSON objects with a name and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.parsers.strict_json import read_json, write_json


def read_call(text: str, keys: Sequence[str] = ("arguments",)) -> tuple[str, str]:
    """Name and arguments of a call in JSON text. Raises ValueError for anything else.

    keys: what the arguments may be called; none of them means no arguments.
    """
    return call_of(read_json(text), keys)


def call_of(value: Any, keys: Sequence[str] = ("arguments",)) -> tuple[str, str]:
    """The same of JSON that has been read. Arguments may also be a string that holds an object."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise ValueError("a call must be an object with a name")
    given = [key for key in keys if key in value]
    if len(given) > 1:
        raise ValueError(f"a call has one of {', '.join(keys)}")
    arguments = value[given[0]] if given else {}
    if isinstance(arguments, str):
        arguments = read_json(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    return value["name"], write_json(arguments)

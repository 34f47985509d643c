"""Calls written as JSON objects with a name and arguments."""

from __future__ import annotations

from typing import Any

from headrace.parsers.strict_json import read_json, write_json

ARGUMENTS = ("arguments", "parameters")
_OTHERS = frozenset({"name", "id", "type"})


def read_call(text: str) -> tuple[str, str]:
    """Name and arguments of a call in JSON text. Raises ValueError for anything else."""
    return call_of(read_json(text))


def call_of(value: Any) -> tuple[str, str]:
    """The same of JSON that has been read.

    Arguments may also be a string that holds an object; left out, null or "" means none. An object
    with other keys is something else that has a name.
    """
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise ValueError("a call must be an object with a name")
    given = [key for key in ARGUMENTS if key in value]
    if len(given) > 1:
        raise ValueError(f"a call has one of {', '.join(ARGUMENTS)}")
    if not value.keys() <= {*_OTHERS, *given} or value.get("type", "function") != "function":
        raise ValueError("a call has no other keys")
    arguments = value[given[0]] if given else None
    if isinstance(arguments, str):
        arguments = read_json(arguments) if arguments.strip() else None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    return value["name"], write_json(arguments)

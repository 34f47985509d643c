"""The schemas inside of a JSON schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from headrace.quoting import shortened

_ONE = ("additionalProperties", "items")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")


def subschemas(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema and all in it that are objects, outer ones first, each with the path to it, for
    messages: a long one is cut."""
    waiting = [("", schema)]
    while waiting:
        where, node = waiting.pop()
        if isinstance(node, dict):
            yield where or "/", node
            waiting += [(shortened(f"{where}/{path}"), box[key]) for path, box, key in slots(node)]


def slots(node: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Where a schema has others: the path, the container, and the key there."""
    for name in _ONE:
        if isinstance(node.get(name), dict):
            yield name, node, name
    for name in _SEVERAL:
        if isinstance(node.get(name), list):
            yield from ((f"{name}/{i}", node[name], i) for i in range(len(node[name])))
    for name in _NAMED:
        if isinstance(node.get(name), dict):
            yield from ((f"{name}/{key}", node[name], key) for key in node[name])


def target(reference: Any, root: Any) -> Any:
    """What a local `$ref` names. Raises LookupError if that can't be told."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise LookupError(reference)
    found = root
    for part in unquote(reference[1:]).split("/")[1:] if reference != "#" else ():
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (TypeError, ValueError) as error:
            raise LookupError(reference) from error
    if reference[1:2] not in ("", "/"):  # an anchor
        raise LookupError(reference)
    return found

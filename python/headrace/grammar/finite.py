"""Schemas that nothing finite meets, such as an object that must hold another of its kind."""

from __future__ import annotations

import contextlib
from typing import Any

from headrace.grammar.schema_tree import slots, subschemas, target


def without_endless(schema: dict[str, Any]) -> None:
    """Puts `false` for each part that no finite JSON meets. Raises ValueError if that is all."""
    nodes = [node for _, node in subschemas(schema)]
    users = _users(nodes, schema)
    finite: set[int] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) not in finite and _is_finite(node, schema, finite):
            finite.add(id(node))
            waiting += users.get(id(node), ())
    if id(schema) not in finite:
        raise ValueError("the JSON schema can't be used: no finite JSON meets it.")
    if len(finite) < len(nodes):
        for node in nodes:
            for _, box, key in slots(node):
                if isinstance(box[key], dict) and id(box[key]) not in finite:
                    box[key] = False


def _users(nodes: list[dict[str, Any]], root: Any) -> dict[int, list[dict[str, Any]]]:
    """By a schema's id: those that depend on it."""
    users: dict[int, list[dict[str, Any]]] = {}
    for node in nodes:
        parts = [box[key] for _, box, key in slots(node)]
        if "$ref" in node:
            with contextlib.suppress(LookupError):
                parts.append(target(node["$ref"], root))
        for part in parts:
            users.setdefault(id(part), []).append(node)
    return users


def _is_finite(node: dict[str, Any], root: Any, finite: set[int]) -> bool:
    """As far as can be told by the parts that are known to be."""

    def known(schema: Any) -> bool:
        return not isinstance(schema, dict) or id(schema) in finite

    if "$ref" in node:
        try:
            if not known(target(node["$ref"], root)):
                return False
        except LookupError:
            pass  # llguidance refuses it
    if not all(map(known, _list(node, "allOf"))):
        return False
    for name in ("anyOf", "oneOf"):
        if node.get(name) and not any(map(known, _list(node, name))):
            return False
    return all(map(known, _needed(node)))


def _needed(node: dict[str, Any]) -> list[Any]:
    """Schemas of what an object or an array of this kind must have."""
    if node.get("type") == "object":
        properties = node.get("properties")
        known = properties if isinstance(properties, dict) else {}
        return [
            known[name]
            for name in _list(node, "required")
            if isinstance(name, str) and name in known
        ]
    if node.get("type") == "array":
        least = node.get("minItems", 0)
        least = least if isinstance(least, int) else 0
        first = _list(node, "prefixItems")
        return first[:least] + ([node.get("items")] if least > len(first) else [])
    return []


def _list(node: dict[str, Any], name: str) -> list[Any]:
    value = node.get(name)
    return value if isinstance(value, list) else []

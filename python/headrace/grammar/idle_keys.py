"""Keys of a JSON schema that allow everything, as generators of schemas write them: they are no
reason to refuse a schema, and none to warn of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

_MOST_TEXT = 1 << 18  # characters that naming keys may add to a schema
_NOTES = frozenset({"title", "description", "$comment", "examples", "default"})


class IdleKeys:
    """Takes such keys from the nodes of one schema, and says the names of an object that may only
    have certain ones as `properties`."""

    def __init__(self, nodes: Iterable[dict[str, Any]]) -> None:
        """nodes: all of the schema."""
        # Whoever refers to additionalProperties needs them where they are.
        others = any("additionalProperties" in unquote(str(node.get("$ref"))) for node in nodes)
        self._room = 0 if others else _MOST_TEXT

    def drop(self, node: dict[str, Any]) -> None:
        """From `node`, not from those in it, which come later."""
        self._name_keys(node)
        for name, is_idle in _IDLE.items():
            if name in node and is_idle(node):
                del node[name]

    def _name_keys(self, node: dict[str, Any]) -> None:
        names = _listed(node.get("propertyNames"))
        if names is None or any(key in node for key in ("properties", "patternProperties", "$ref")):
            return
        if self._room <= 0:
            return
        others = node.get("additionalProperties", True)
        text = json.dumps(others)
        size = len(text) * max(1, len(names))
        fits = size <= self._room and '"propertyNames"' not in text
        self._room -= size if fits else len(text)  # so that all this takes linear time
        if not fits:
            return
        del node["propertyNames"]
        node["properties"] = {} if others is False else dict.fromkeys(names, others)
        node["additionalProperties"] = False


def _listed(schema: Any) -> list[str] | None:
    """The texts that a schema allows, if it lists them."""
    if not isinstance(schema, dict) or schema.keys() - _NOTES - {"type", "enum", "const"}:
        return None
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not _allows_texts(schema.get("type", "string")) or not isinstance(listed, list):
        return None
    if "enum" in schema and "const" in schema:
        return None
    return [name for name in listed if isinstance(name, str)]


def _allows_texts(kind: Any) -> bool:
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _is_free(schema: Any) -> bool:
    """Whether it allows everything."""
    return schema is True or (isinstance(schema, dict) and not schema.keys() - _NOTES)


def _names_are_free(node: dict[str, Any]) -> bool:
    schema = node["propertyNames"]
    if not isinstance(schema, dict) or "type" not in schema:
        return _is_free(schema)
    return _allows_texts(schema["type"]) and not schema.keys() - _NOTES - {"type"}


def _branches_are_free(node: dict[str, Any]) -> bool:
    return all(_is_free(node.get(name, True)) for name in ("then", "else"))


def _asks_for_none(node: dict[str, Any]) -> bool:
    least = node.get("minContains")
    return least == 0 and least is not False and "maxContains" not in node


def _all_free(name: str) -> Callable[[dict[str, Any]], bool]:
    def are_free(node: dict[str, Any]) -> bool:
        value = node[name]
        return isinstance(value, dict) and all(one == [] or _is_free(one) for one in value.values())

    return are_free


# In this order: a key may be idle for want of another one.
_IDLE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "uniqueItems": lambda node: node["uniqueItems"] is False,
    "not": lambda node: node["not"] is False,
    "propertyNames": _names_are_free,
    "unevaluatedItems": lambda node: _is_free(node["unevaluatedItems"]),
    "unevaluatedProperties": lambda node: _is_free(node["unevaluatedProperties"]),
    "dependentRequired": _all_free("dependentRequired"),
    "dependentSchemas": _all_free("dependentSchemas"),
    "dependencies": _all_free("dependencies"),
    "contains": _asks_for_none,
    "minContains": lambda node: "contains" not in node,
    "maxContains": lambda node: "contains" not in node,
    "if": _branches_are_free,
    "then": lambda node: "if" not in node,
    "else": lambda node: "if" not in node,
}

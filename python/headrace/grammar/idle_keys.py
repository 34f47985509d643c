"""Keys of a JSON schema that allow everything, as generators of schemas write them: they are no
reason to refuse a schema, and none to warn of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_MOST_TEXT = 1 << 16  # that naming keys may add to a schema
_NOTES = frozenset({"title", "description", "$comment", "examples", "default"})


def drop_idle_keys(node: dict[str, Any]) -> None:
    """Takes such keys from a schema, not from those in it, and says the names of an object that
    may only have certain ones as `properties`."""
    _name_keys(node)
    for name, is_idle in _IDLE.items():
        if name in node and is_idle(node):
            del node[name]


def _name_keys(node: dict[str, Any]) -> None:
    names = _listed(node.get("propertyNames"))
    if names is None or any(key in node for key in ("properties", "patternProperties", "$ref")):
        return
    others = node.get("additionalProperties", True)
    text = json.dumps(others)
    if '"propertyNames"' in text or len(text) * len(names) > _MOST_TEXT:
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
    return node.get("minContains") == 0 and "maxContains" not in node


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

"""Schemas of functions as tools write them, made those of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Names of types that other languages have; None: any.
_TYPES: dict[str, str | None] = {
    "float": "number",
    "double": "number",
    "decimal": "number",
    "int": "integer",
    "long": "integer",
    "str": "string",
    "text": "string",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
    "any": None,
}
_DATA = frozenset({"enum", "const", "default", "examples", "example"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SAYS_NOTHING = frozenset(
    {"type", "properties", "required", "title", "description", "$schema", "x-guidance", "strict"}
)


def tool_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with JSON's names of types. Without a word about parameters: of `{}` alone.

    Raises ValueError if it is nested too deeply.
    """
    try:
        known = _renamed(schema)
    except RecursionError:
        raise ValueError("tools: the schema of a function is nested too deeply") from None
    if not isinstance(known, Mapping) or known.get("properties") or known.keys() - _SAYS_NOTHING:
        return schema if known == schema else known
    if known.get("type", "object") != "object":
        return known
    return {**known, "type": "object", "properties": {}, "additionalProperties": False}


def _renamed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_renamed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type":
            types = [_TYPES.get(kind, kind) if isinstance(kind, str) else kind
                     for kind in (value if isinstance(value, list) else [value])]  # fmt: skip
            if None not in types:
                result[key] = types if isinstance(value, list) else types[0]
        elif key in _MAPS and isinstance(value, Mapping):
            result[key] = {name: _renamed(item) for name, item in value.items()}
        else:
            result[key] = value if key in _DATA else _renamed(value)
    return result

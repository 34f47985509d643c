"""Arguments written as text, given the types that the function's schema asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.parsers.strict_json import read_json
from headrace.parsers.tools.format import Function

_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def typed_value(function: Function | None, name: str, text: str) -> Any:
    """The text itself where a string is asked for, or if it isn't JSON of a type asked for.

    Without a schema for it, too.
    """
    properties = None if function is None else function.parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, Mapping) else None
    if isinstance(schema, Mapping) and text in (schema.get("enum") or ()):
        return text
    wanted = schema_types(schema)
    if not wanted or wanted == {"string"}:
        return text
    try:
        value = read_json(text)
    except ValueError:
        return text
    if isinstance(value, str):
        return text if "string" in wanted else value
    return value if any(_is(value, kind) for kind in wanted) else text


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, ()))


def schema_types(schema: Any) -> set[str]:
    """The JSON types that a schema allows; none if it doesn't say."""
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {item for item in kind if isinstance(item, str)}
    found: set[str] = set()
    for key in ("anyOf", "oneOf"):
        for item in schema.get(key) or ():
            found |= schema_types(item)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    for value in values:
        found |= {"string"} if isinstance(value, str) else {k for k in _TYPES if _is(value, k)}
    return found

"""Objects that have no more keys to offer.

llguidance lets a comma follow while `patternProperties` are there, also where every key that they
match is among the `properties`, which come before them: nothing can follow then.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

_COMPACT = {"whitespace_flexible": False}
_MASK_BYTES = 256 // 8  # then comes the end


def bare_object(node: dict[str, Any]) -> None:
    """Takes `patternProperties` from a schema in which they add no key; what they ask of its
    properties goes there."""
    patterns = node.get("patternProperties")
    properties = node.get("properties", {})
    if not isinstance(patterns, dict) or not patterns or not isinstance(properties, dict):
        return
    others = node.get("additionalProperties", True) is not False
    names = tuple(properties)
    try:
        if _may_have_more(names, _shape(patterns), others):
            return
    except ValueError:
        return  # llguidance will say what is wrong
    for name in names:
        asked = [patterns[pattern] for pattern in patterns if _matches(pattern, name)]
        if asked:
            properties[name] = {"allOf": [properties[name], *asked]}
    del node["patternProperties"]
    node["additionalProperties"] = False


def _shape(patterns: dict[str, Any]) -> tuple[tuple[str, bool], ...]:
    return tuple((pattern, value is not False) for pattern, value in patterns.items())


@lru_cache(maxsize=256)
def _may_have_more(
    names: tuple[str, ...], patterns: tuple[tuple[str, bool], ...], others: bool
) -> bool:
    """Whether an object that has all `names` can have another key. Raises ValueError."""
    schema = {
        "type": "object",
        "properties": {name: {"const": 0} for name in names},
        "required": list(names),
        "patternProperties": {key: {"const": 0} if usable else False for key, usable in patterns},
        "additionalProperties": {"const": 0} if others else False,
        "x-guidance": _COMPACT,
    }
    whole = json.dumps(dict.fromkeys(names, 0), ensure_ascii=False, separators=(",", ":"))
    begun = whole[:-1] + ("," if names else '"')
    return bool(_follows(schema, begun.encode()))


@lru_cache(maxsize=1024)
def _matches(pattern: str, name: str) -> bool:
    """Raises ValueError."""
    schema = {
        "type": "object",
        "properties": {name: {"const": 0}},
        "patternProperties": {pattern: {"const": 1}},  # no value is both
        "additionalProperties": False,
        "x-guidance": _COMPACT,
    }
    return not _follows(schema, ("{" + json.dumps(name, ensure_ascii=False)).encode())


def _follows(schema: dict[str, Any], begun: bytes) -> bool:
    """Whether anything can follow what has begun. Raises ValueError."""
    from llguidance import LLMatcher

    matcher = LLMatcher(_tokenizer(), LLMatcher.grammar_from_json_schema(schema), log_level=0)
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    if matcher.try_consume_tokens(list(begun)) < len(begun):
        return False
    return any(matcher.compute_bitmask()[:_MASK_BYTES])


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    """Of single bytes, and an end."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")

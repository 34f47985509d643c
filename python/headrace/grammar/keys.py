"""Objects that have no more keys to offer.

llguidance lets a comma follow while `patternProperties` are there, also where every key that they
match is among the `properties`, which come before them: nothing can follow then. Those may stand in
another part of the schema (`allOf`, `$ref`), or be no more than `required`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_COMPACT = {"whitespace_flexible": False}
_MASK_BYTES = 256 // 8  # then comes the end


def named_keys(nodes: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """The keys that some of these schemas call by name."""
    names: dict[str, None] = {}
    for node in nodes:
        for keys in (node.get("properties"), node.get("required")):
            if isinstance(keys, (dict, list)):
                names.update((name, None) for name in keys if isinstance(name, str))
    return tuple(names)


def bare_object(node: dict[str, Any], named: tuple[str, ...]) -> None:
    """Takes `patternProperties` from a schema in which they add no key to its properties, or none
    that isn't in `named`: those become properties. What they ask of properties goes there."""
    patterns = node.get("patternProperties")
    properties = node.get("properties", {})
    if not isinstance(patterns, dict) or not patterns or not isinstance(properties, dict):
        return
    others = node.get("additionalProperties", True) is not False
    try:
        names = _all_keys(tuple(properties), named, _shape(patterns), others)
        if names is None:
            return
        asked = {
            name: [patterns[pattern] for pattern in patterns if _matches(pattern, name)]
            for name in names
        }
    except ValueError:
        return  # llguidance will say what is wrong
    for name, schemas in asked.items():
        if schemas:
            own = [properties[name]] if name in properties else []
            properties[name] = {"allOf": [*own, *schemas]}
    del node["patternProperties"]
    node.update(properties=properties, additionalProperties=False)


def _all_keys(
    own: tuple[str, ...],
    named: tuple[str, ...],
    patterns: tuple[tuple[str, bool], ...],
    others: bool,
) -> tuple[str, ...] | None:
    """Names that have every key of an object among them; None: there are more. Raises
    ValueError."""
    if not _may_have_more(own, patterns, others):
        return own
    names = tuple(dict.fromkeys((*own, *named)))
    usable = tuple(pattern for pattern in patterns if pattern[1])  # the others allow no key
    if others or names == own or _may_have_more(names, usable, False):
        return None
    return names


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

"""JSON schemas and regular expressions that constraints are made of."""

from __future__ import annotations

import random
from typing import Any

_NODE = {
    "type": "object",
    "properties": {
        "v": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
    },
    "required": ["v"],
    "additionalProperties": False,
}
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "uuid")

SCHEMAS: list[Any] = [
    {},
    {"type": "object"},
    {"type": "string"},
    {"type": "number"},
    {"type": "integer"},
    {"type": "boolean"},
    {"type": "null"},
    {"type": "array"},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "pattern": "^[a-z]+$"},
    {"type": "string", "pattern": "a"},
    {"type": "string", "pattern": "^\\d{2}-\\w+"},
    {"type": "string", "pattern": "^(a|bc)+$", "maxLength": 5},
    {"type": "string", "pattern": "^(a|b$)|c"},
    {"type": "integer", "minimum": 3},
    {"type": "integer", "minimum": -5, "maximum": 120},
    {"type": "integer", "minimum": 17, "maximum": 1234},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 7},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "multipleOf": 7},
    {"type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 100},
    {"type": "number", "multipleOf": 0.25},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "minimum": 0.5},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "minimum": -1.5, "maximum": 3.25},
    {"enum": ["a", "ab", 1, None, True, {"x": [1, {}]}, []]},
    {"const": 'x\n"y\\'},
    {"const": 1.5},
    {"enum": [0.1, 1e-7, 1e22]},
    {"type": "integer", "enum": [1, "a", 2.0]},
    {"enum": ["a", 5], "minimum": 3, "type": ["string", "number"]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False},
    {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "null"}],
        "items": {"type": "boolean"},
        "minItems": 1,
        "maxItems": 4,
    },
    {"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "null"}},
    {"type": "array", "maxItems": 0},
    {"type": "array", "items": False},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": True},
        "required": ["b"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    },
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "required": ["z", "y"]},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
    {
        "type": "object",
        "patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "null"}},
        "additionalProperties": {"type": "boolean"},
    },
    {"type": "object", "minProperties": 1},
    {"type": "object", "minProperties": 2, "maxProperties": 3},
    {"type": "object", "maxProperties": 0},
    {"type": "object", "properties": {"a": False, "b": {"type": "null"}}},
    {
        "type": "object",
        "properties": {'é"': {"type": "null"}, "a b": {"type": "null"}},
        "additionalProperties": False,
    },
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "array"}]},
    {"oneOf": [{"type": "string"}, {"type": "null"}]},
    {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    {"type": ["object", "array", "integer"]},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}},
            {"properties": {"b": {"type": "null"}}, "required": ["b"]},
        ]
    },
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 20}]},
    {"allOf": [{"minLength": 2}, {"type": "string", "maxLength": 3}]},
    {"$ref": "#/$defs/n", "$defs": {"n": _NODE}},
    {
        "type": "object",
        "properties": {"l": {"type": "array", "items": {"$ref": "#"}}},
        "additionalProperties": False,
    },
    {"properties": {"a": {"type": "integer"}}},
    {"minLength": 3},
    {"items": {"type": "null"}},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "additionalProperties": False,
    },
    {"title": "x", "description": "y", "default": 1, "type": "null"},
    {"type": "object", "x-guidance": {"whitespace_flexible": False}},
    {"type": "array", "x-guidance": {"whitespace_flexible": True}, "items": {"type": "null"}},
    {
        "type": "array",
        "x-guidance": {
            "whitespace_flexible": False,
            "item_separator": ", ",
            "key_separator": ": ",
        },
    },
    *({"type": "string", "format": name} for name in (*_FORMATS, "ipv6", "uri", "no-such-format")),
    {"not": {"type": "null"}},
    {"type": "object", "dependentRequired": {"a": ["b"]}},
    {"$ref": "#/nowhere"},
    {"type": "mystery"},
    {"type": "integer", "minimum": 3, "maximum": 2},
    {"type": "string", "pattern": "("},
]

REGEXES = [
    "",
    "a",
    "ab|c",
    "[0-9]{3}",
    "a+b?",
    "(a|b)*c",
    "\\d+",
    "\\w{1,3}",
    ".*",
    "(?s).*",
    ".{2,5}x",
    "[^a-z]",
    "[a-z&&[^aeiou]]{2}",
    "\\s",
    "(?i)abc",
    "(?i)straße",
    "[\\u{1F600}-\\u{1F64F}]",
    "\\p{Greek}+",
    "\\p{Lu}\\p{Ll}*",
    "(?:ab){2,4}",
    "a{0}b",
    "[[:digit:]]+",
    "\\x41\\x{42}",
    "é+",
    "(?x) a b # c",
    "a|",
    "(|a)b",
    "[a-c]{2,}",
    "((a?)b?){3}",
    "(a*)*b",
    "\\.\\*\\[",
    "[-a]",
    "[]a]",
    "[^]a]",
    "[a\\]]",
    "x{2}{3}",
    "a*?b+?",
    "(?P<n>a)(?<m>b)",
    "^ab$",
    "\\Aab\\z",
    "\\D{2}",
    "[\\d--[3-5]]",
    "[a-f~~d-k]",
    "a{1,1000000}",
    "(a{1,1000}){1,1000}",
    "(",
    "a)",
    "[b-a]",
    "*a",
    "a{2",
    "(?=a)b",
    "\\bfoo\\b",
    "(a)\\1",
    "\\p{NoSuchThing}",
]


def random_regex(rng: random.Random, depth: int = 3) -> str:
    kind = rng.randrange(6 if depth > 0 else 2)
    if kind == 0:
        return rng.choice("abcé")
    if kind == 1:
        return rng.choice(("[ab]", "[^a]", "[a-z]", "\\d", ".", "\\w", "[α-ω]", "\\n"))
    parts = [random_regex(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    if kind in (2, 3):
        return "".join(parts)
    if kind == 4:
        return f"(?:{'|'.join(parts)})"
    return f"(?:{parts[0]}){rng.choice(('*', '+', '?', '{2}', '{1,3}', '{0,2}', '{2,}'))}"


def random_schema(rng: random.Random, depth: int = 3) -> Any:
    """Of keywords that are supported."""
    kind = rng.randrange(10 if depth > 0 else 6)

    def inner() -> Any:
        return random_schema(rng, depth - 1)

    if kind == 0:
        low = rng.randint(-2000, 2000)
        return {"type": "integer", "minimum": low, "maximum": low + rng.choice((0, 3, 77, 12345))}
    if kind == 1:
        shortest = rng.randint(0, 3)
        return {"type": "string", "minLength": shortest, "maxLength": shortest + rng.randint(0, 4)}
    if kind == 2:
        return {"type": "string", "pattern": rng.choice(("", "^")) + random_regex(rng, 2)}
    if kind == 3:
        return {"enum": rng.sample(["a", "ab", "b", 1, 12, -3, 2.5, None, True, [], {}, [1]], 3)}
    if kind == 4:
        return {"type": rng.choice(("integer", "number", "string", "boolean", "null"))}
    if kind == 5:
        return rng.choice(({}, True, {"type": "string", "format": rng.choice(_FORMATS)}))
    if kind == 6:
        least = rng.randint(0, 2)
        bounds = {"minItems": least, "maxItems": least + rng.randint(0, 2)}
        first = {"prefixItems": [inner() for _ in range(rng.randint(1, 2))]}
        own = {"type": "array", "items": inner()}
        return {**own, **rng.choice(({}, bounds, first, {**bounds, **first}))}
    if kind == 7:
        return {"anyOf": [inner() for _ in range(rng.randint(1, 3))]}
    names = rng.sample(["a", "ab", "b", "c d", "é", "x"], rng.randint(1, 4))
    other = rng.choice(({}, {"additionalProperties": False}, {"additionalProperties": inner()}))
    return {
        "type": "object",
        "properties": {name: inner() for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
        **other,
    }

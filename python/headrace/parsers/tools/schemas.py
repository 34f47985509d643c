"""Functions' schemas in grammars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.parsers.tools.format import Function, literal
from headrace.parsers.tools.typed import schema_types

TEXT_VALUE = "text_value"  # the rule of a text that ends with ToolFormat.text_end
_SHARED = ("$defs", "definitions", "x-guidance")


def json_rule(schema: Any) -> str:
    """JSON of a schema, as Lark has it."""
    from headrace.grammar.spec import json_schema  # takes its time, and only guided calls need it

    return f"%json {json_schema(schema).text}"


def calls_in_json(functions: Sequence[Function], head: Callable[[str], str]) -> str:
    """One call of any of them: what `head` makes of the name, the arguments in JSON, and "}"."""
    calls = " | ".join(f"({literal(head(f.name))} {json_rule(f.parameters)})" for f in functions)
    return f'({calls}) "}}"'


def parameters(
    function: Function, one: Callable[[str, str], str], *, text_end: str, separator: str = ""
) -> str:
    """Named parameters in the schema's order, those that aren't required optional.

    one: a parameter of a name with the rule of its value.
    text_end: what ends a value; a text is written as it is, up to the first one. "": texts are JSON
        strings.
    separator: a literal between parameters.
    """
    known = function.parameters.get("properties")
    properties = known if isinstance(known, Mapping) else {}
    required = function.parameters.get("required") or ()
    shared = {key: function.parameters[key] for key in _SHARED if key in function.parameters}
    rules = [
        (one(name, _value(schema, shared, text_end)), name in required)
        for name, schema in properties.items()
    ]
    return _separated(rules, separator) if separator else _in_order(rules)


def _value(schema: Any, shared: Mapping[str, Any], text_end: str) -> str:
    if text_end and schema_types(schema) in (set(), {"string"}):
        values = schema.get("enum") if isinstance(schema, Mapping) else None
        if values:
            return f"({' | '.join(literal(value + text_end) for value in values)})"
        return TEXT_VALUE
    whole = {**shared, **schema} if isinstance(schema, Mapping) else schema
    return json_rule(whole) + (f" {literal(text_end)}" if text_end else "")


def _in_order(rules: list[tuple[str, bool]]) -> str:
    return " ".join(rule if needed else f"({rule})?" for rule, needed in rules)


def _separated(rules: list[tuple[str, bool]], separator: str) -> str:
    """With the separator between those that are there."""
    rest = ""  # of a list in which something has come before
    first = '""'  # of one that begins here
    for rule, needed in reversed(rules):
        own = f"{rule} {rest}"
        first = f"({own})" if needed else f"({own} | {first})"
        rest = f"{literal(separator)} {own}" if needed else f"({literal(separator)} {rule})? {rest}"
    return first

"""Structural tags: free text in which certain openings must be followed by certain JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.quoting import quoted


def structural_tag_grammar(value: Any, schema_text: Callable[[Any], str]) -> str:
    """A Lark grammar for {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}.

    Any text may come, until it contains a trigger; then one of the structures that begin with it
    must follow: the rest of its `begin`, JSON of its schema, its `end`. After that, again.
    Raises ValueError naming what is wrong.
    """
    if not isinstance(value, Mapping):
        raise ValueError("structural_tag must be a JSON object")
    structures, triggers = _list(value, "structures"), _list(value, "triggers")
    bodies: dict[str, list[str]] = {}
    for index, structure in enumerate(structures):
        trigger, body = _structure(structure, triggers, f"structures[{index}]", schema_text)
        bodies.setdefault(trigger, []).append(body)
    names = " | ".join(f"tag_{i}" for i in range(len(bodies)))
    lines = [
        f"start: ({names})* tail",
        "tail: TEXT",
        "TEXT: /(.|\\n)*/",
    ]
    for i, (trigger, alternatives) in enumerate(bodies.items()):
        lines.append(f"opening_{i}[lazy]: TEXT {json.dumps(trigger)}")
        lines.append(f"tag_{i}: opening_{i} ({' | '.join(alternatives)})")
    return "\n".join(lines)


def _list(value: Mapping[Any, Any], name: str) -> Sequence[Any]:
    items = value.get(name)
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise ValueError(f"structural_tag needs {quoted(name)}, a list that is not empty")
    return items


def _structure(
    value: Any, triggers: Sequence[Any], name: str, schema_text: Callable[[Any], str]
) -> tuple[str, str]:
    """The trigger it belongs to, and what follows the trigger."""
    if not isinstance(value, Mapping):
        raise ValueError(f"structural_tag: {name} must be an object")
    begin, end = value.get("begin"), value.get("end")
    if not isinstance(begin, str) or not isinstance(end, str):
        raise ValueError(f"structural_tag: {name} needs 'begin' and 'end', two strings")
    if "schema" not in value:
        raise ValueError(f"structural_tag: {name} needs a 'schema'")
    matching = [t for t in triggers if isinstance(t, str) and t and begin.startswith(t)]
    if not matching:
        raise ValueError(f"structural_tag: {name}: 'begin' {quoted(begin)} starts with no trigger")
    trigger = max(matching, key=len)
    parts = [
        json.dumps(begin[len(trigger) :]) if len(begin) > len(trigger) else "",
        f"%json {schema_text(value['schema'])}",
        json.dumps(end) if end else "",
    ]
    return trigger, " ".join(part for part in parts if part)

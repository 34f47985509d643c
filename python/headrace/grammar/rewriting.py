"""JSON schemas as llguidance can guide them: without what it doesn't know, what it takes for ever
to compile, and dead ends, from which no output comes to its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from headrace.grammar.finite import without_endless
from headrace.grammar.idle_keys import IdleKeys
from headrace.grammar.keys import bare_object, named_keys
from headrace.grammar.schema_tree import subschemas
from headrace.quoting import shortened

Compiles = Callable[[str], None]  # raises ValueError

_UNKNOWN = frozenset(
    {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
        "$dynamicAnchor",
        "$recursiveRef",
        "$recursiveAnchor",
    }
)
_TYPES = frozenset({"string", "integer", "number", "object", "array", "boolean", "null"})
# Of what a number is a multiple, without factors of 2 and 5: compiling takes 10 us for each.
_MOST_MULTIPLE = 10_000
_MOST_NOTES = 20


class GuidableSchema:
    """One schema, made guidable. `notes`: what was left out, a phrase each; of much the first."""

    def __init__(self, text: str, lenient: bool, compiles: Compiles) -> None:
        """Raises ValueError for what can't be guided, if not `lenient`."""
        self.notes: list[str] = []
        self._lenient = lenient
        self._compiles = compiles
        self._schema = json.loads(text)
        if not isinstance(self._schema, dict):
            self._compiles(text)
            return
        nodes = list(subschemas(self._schema))
        idle = IdleKeys(node for _, node in nodes)
        for path, node in nodes:
            idle.drop(node)
            self._read(path, node)
        self._last_resort(text)

    def text(self) -> str:
        return json.dumps(self._schema, ensure_ascii=False)

    def _last_resort(self, text: str) -> None:
        try:
            if '"$ref"' in text:
                without_endless(self._schema)
            if '"patternProperties"' in text:
                nodes = [node for _, node in subschemas(self._schema)]
                named = named_keys(nodes)
                for node in nodes:
                    bare_object(node, named)
            self._compiles(self.text())
        except ValueError as error:
            if not self._lenient:
                raise
            kept = {name: self._schema[name] for name in ("x-guidance",) if name in self._schema}
            kind = self._schema.get("type")
            self._schema = {**({"type": kind} if _known_type(kind) else {}), **kept}
            self._note(f"the schema ({shortened(str(error))})")

    def _read(self, path: str, node: dict[str, Any]) -> None:
        if self._lenient:
            for name in _UNKNOWN & node.keys():
                self._drop(path, node, name)
        if "multipleOf" in node and not _is_cheap(node["multipleOf"]):
            if not self._lenient:
                value = shortened(str(node["multipleOf"]))
                raise ValueError(
                    f"the JSON schema can't be used: multipleOf {value} at {path} takes too "
                    f"long to compile: the limit is {_MOST_MULTIPLE}, "
                    "not counting factors of 2 and 5."
                )
            self._drop(path, node, "multipleOf")
        if self._lenient:
            self._leave_out(path, node)

    def _leave_out(self, path: str, node: dict[str, Any]) -> None:
        kind = node.get("type")
        if kind is not None and not _known_type(kind):
            self._drop(path, node, "type")
        if "format" in node and not self._fits({"type": "string", "format": node["format"]}):
            self._drop(path, node, "format")
        if "pattern" in node and not self._fits({"type": "string", "pattern": node["pattern"]}):
            self._drop(path, node, "pattern")
        patterns = node.get("patternProperties")
        if isinstance(patterns, dict) and not self._fits(
            {"type": "object", "patternProperties": dict.fromkeys(patterns, True)}
        ):
            self._drop(path, node, "patternProperties")
            node.pop("additionalProperties", None)  # which were those beside them
        if "oneOf" in node and not self._fits({"oneOf": node["oneOf"], **self._definitions()}):
            node["anyOf" if "anyOf" not in node else "oneOf"] = node.pop("oneOf")
            self._note(f"oneOf at {path}, taken as anyOf")
        reference = node.get("$ref")
        if reference is not None and not (isinstance(reference, str) and reference.startswith("#")):
            self._drop(path, node, "$ref")

    def _definitions(self) -> dict[str, Any]:
        return {
            name: self._schema[name] for name in ("$defs", "definitions") if name in self._schema
        }

    def _fits(self, schema: Any) -> bool:
        return _fits(json.dumps(schema), self._compiles)

    def _drop(self, path: str, node: dict[str, Any], name: str) -> None:
        del node[name]
        self._note(f"{name} at {path}")

    def _note(self, note: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(note)
        elif len(self.notes) == _MOST_NOTES:
            self.notes.append("more")


@lru_cache(maxsize=1024)
def _fits(text: str, compiles: Compiles) -> bool:
    try:
        compiles(text)
    except ValueError:
        return False
    return True


def _known_type(kind: Any) -> bool:
    kinds = kind if isinstance(kind, list) else [kind]
    return all(isinstance(one, str) and one in _TYPES for one in kinds)


def _is_cheap(multiple: Any) -> bool:
    """Whether llguidance compiles it soon; what is no number is refused by it."""
    if isinstance(multiple, bool) or not isinstance(multiple, (int, float)):
        return True
    try:
        digits = Decimal(str(multiple)).as_tuple().digits
    except (InvalidOperation, ValueError):
        return False
    if len(digits) > 30:
        return False
    rest = int("".join(map(str, digits)))
    for factor in (2, 5):
        while rest and rest % factor == 0:
            rest //= factor
    return rest <= _MOST_MULTIPLE

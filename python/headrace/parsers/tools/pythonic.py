"""[name(key=value, ...), ...]: Llama 3.2 and 4 when they write Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from headrace.parsers.strict_json import BracketTracker, write_json
from headrace.parsers.tools.format import Function, Reading, ToolFormat, literal
from headrace.parsers.tools.schemas import parameters

MAX_CHARS = 1 << 16  # of a list of calls
_JSON_NAMES = {"true": True, "false": False, "null": None}


class Pythonic(ToolFormat):
    """An output that begins with a list of calls with keyword arguments, all of them literals."""

    markers = ("[",)
    at_start = True

    def begin(self) -> None:
        self._tracker = BracketTracker(quotes="\"'")

    def read(self, text: str, final: bool) -> Reading | None:
        end = self._tracker.find_end(text)
        if end == -1:
            return None
        try:
            return Reading(end, _read_calls(text[:end]))
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return Reading(end, None)

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        def one(name: str, value: str) -> str:
            return f"{literal(f'{name}=')} {value}"

        calls = " | ".join(
            f'({literal(f.name + "(")} {parameters(f, one, text_end="", separator=", ")} ")")'
            for f in functions
        )
        return f'({calls}) (", " ({calls}))* "]"' if several else f'({calls}) "]"'


def _read_calls(text: str) -> list[tuple[str, str]]:
    """Raises what ast raises, or ValueError."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"more than {MAX_CHARS} characters")
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.List) or not tree.elts:
        raise ValueError("not a list of calls")
    return [_read_call(item) for item in tree.elts]


def _read_call(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("not a call with keyword arguments")
    values: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("not a literal")
        values[keyword.arg] = _value(keyword.value)
    return ast.unparse(node.func), write_json(values)


def _value(node: ast.expr) -> Any:
    """JSON's names for constants are understood, too."""
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_value(key)): _value(value) for key, value in pairs if key is not None}
    value = ast.literal_eval(node)
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ValueError("not JSON")
    return value

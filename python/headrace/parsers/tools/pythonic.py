"""[name(key=value, ...), ...]: Llama 3.2 and 4 when they write Python."""

from __future__ import annotations

import ast
import itertools
import keyword
import tokenize
from collections.abc import Callable, Sequence
from typing import Any

from headrace.parsers.strict_json import BracketTracker, write_json
from headrace.parsers.tools.format import Function, Reading, ToolFormat, literal
from headrace.parsers.tools.schemas import parameters

MAX_CHARS = 1 << 16  # of a list of calls
_SUFFIX = "__reserved"  # behind a reserved word that names a parameter
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
    tree = _parsed(text).body
    if not isinstance(tree, ast.List) or not tree.elts:
        raise ValueError("not a list of calls")
    return [_read_call(item) for item in tree.elts]


def _parsed(text: str) -> ast.Expression:
    """A parameter may be named as a word of Python: from=..."""
    try:
        return ast.parse(text, mode="eval")
    except SyntaxError:
        return ast.parse(_with_suffixes(text), mode="eval")


def _with_suffixes(text: str) -> str:
    """The text with reserved words before "=" made names."""
    lines = text.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    try:
        tokens = list(tokenize.generate_tokens(iter(lines).__next__))
    except (tokenize.TokenError, StopIteration) as error:
        raise ValueError("not Python") from error
    ends = [
        starts[token.end[0] - 1] + token.end[1]
        for token, following in itertools.pairwise(tokens)
        if keyword.iskeyword(token.string) and following.string == "="
    ]
    for end in reversed(ends):
        text = text[:end] + _SUFFIX + text[end:]
    return text


def _read_call(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("not a call with keyword arguments")
    values: dict[str, Any] = {}
    for given in node.keywords:
        if given.arg is None:
            raise ValueError("not a literal")
        values[given.arg.removesuffix(_SUFFIX)] = _value(given.value)
    return ast.unparse(node.func), write_json(values)


def _value(node: ast.expr) -> Any:
    """JSON's names for constants are understood, too."""
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_value(key)): _value(value) for key, value in pairs if key is not None}
    value = ast.literal_eval(node)
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ValueError("not JSON")
    return value

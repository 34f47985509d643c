"""JSON as models may write it in a call: no duplicate keys, no NaN, no deep nesting."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_ARGUMENT_CHARS = 1 << 20  # of one call


def read_json(text: str) -> Any:
    """Raises ValueError for what isn't strict JSON, or has more than MAX_ARGUMENT_CHARS."""
    if len(text) > MAX_ARGUMENT_CHARS:
        raise ValueError(f"{len(text)} characters, more than {MAX_ARGUMENT_CHARS}")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write_json(value: Any) -> str:
    """As FastDeploy and transformers write arguments: characters as they are, ", " and ": "."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class StringTracker:
    """Finds a marker outside of JSON strings, in text that grows. Each character is read once."""

    __slots__ = ("_in_string", "_position")

    def __init__(self, start: int = 0) -> None:
        self._position = start
        self._in_string = False

    def find(self, text: str, marker: str) -> int:
        """Where `marker` begins in `text`, which begins with what came before; -1: not yet."""
        while True:
            quote = _first(text, '"', self._position)
            if self._in_string:
                escape = text.find("\\", self._position, quote)
                if escape != -1:
                    if escape + 1 >= len(text):
                        self._position = escape
                        return -1
                    self._position = escape + 2
                    continue
            else:
                found = text.find(marker, self._position, quote)
                if found != -1:
                    return found
            if quote == len(text):
                # Outside of a string the last characters may begin the marker.
                back = 0 if self._in_string else len(marker) - 1
                self._position = max(self._position, quote - back)
                return -1
            self._position = quote + 1
            self._in_string = not self._in_string


def _first(text: str, char: str, start: int) -> int:
    """Its place, or the text's length."""
    place = text.find(char, start)
    return len(text) if place == -1 else place


class BracketTracker:
    """Finds where a value in brackets ends, in text that grows. Each character is read once."""

    __slots__ = ("_depth", "_position", "_quote", "_quotes")

    def __init__(self, start: int = 0, quotes: str = '"') -> None:
        """start: where the opening bracket is. quotes: what strings are written in."""
        self._position = start
        self._depth = 0
        self._quote = ""
        self._quotes = quotes

    def find_end(self, text: str) -> int:
        """Behind the closing bracket in `text`, which begins with what came before; -1: not yet."""
        while self._position < len(text):
            found = (_IN_STRING if self._quote else _OUTSIDE).search(text, self._position)
            if found is None:
                self._position = len(text)
                return -1
            char = found.group()
            if char == "\\" and found.end() == len(text):
                self._position = found.start()
                return -1
            self._position = found.end() + (char == "\\")
            if char in self._quotes:
                self._quote = "" if char == self._quote else self._quote or char
            elif not self._quote and char in "{[(":
                self._depth += 1
            elif not self._quote and char in "}])":
                self._depth -= 1
                if self._depth == 0:
                    return self._position
        return -1


_OUTSIDE = re.compile(r"[\"'{}\[\]()]")
_IN_STRING = re.compile(r"[\"'\\]")

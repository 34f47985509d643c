"""JSON of strangers: read in small steps, so that other threads get their turns, and not without
end."""

from __future__ import annotations

import json
import re
from json import decoder
from typing import Any

MAX_DEPTH = 200
_SPACE = re.compile(r"[ \t\n\r]*")
# Numbers, true, false and null with commas between them; so many at a time.
_SCALARS = re.compile(r"[-+0-9.eEtrufalsn, \t\n\r]{1,32768}")
_SCALAR = re.compile(r"[-+0-9.eEtrufalsnNIityd]+")
_scan_string = decoder.scanstring  # type: ignore[attr-defined]  # the one in C


class TooManyValues(ValueError):
    """There are more of them than may be."""


def read_json(text: str, most: int) -> Any:
    """What json.loads gives, NaN and infinities refused.

    most: values, those in others among them. Raises ValueError, TooManyValues.
    """
    reader = _Reader(text, most)
    value = reader.value(reader.skip(0), 0)
    if reader.skip(reader.place) < len(text):
        raise reader.wrong("nothing more", reader.place)
    return value


class _Reader:
    """`place`: behind what was read last."""

    def __init__(self, text: str, most: int) -> None:
        self._text = text
        self._most = self._left = most
        self.place = 0

    def skip(self, place: int) -> int:
        found = _SPACE.match(self._text, place)
        return place if found is None else found.end()

    def wrong(self, expected: str, place: int) -> ValueError:
        return json.JSONDecodeError(f"expected {expected}", self._text, place)

    def value(self, place: int, depth: int) -> Any:
        self._count(1)
        char = self._text[place : place + 1]
        if char == '"':
            return self._string(place)
        if char in ("{", "[") and depth == MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if char == "{":
            return self._object(self.skip(place + 1), depth + 1)
        if char == "[":
            return self._array(self.skip(place + 1), depth + 1)
        found = _SCALAR.match(self._text, place)
        if found is None:
            raise self.wrong("a value", place)
        self.place = found.end()
        return self._loaded(found.group(), place)

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise TooManyValues(f"it has more than {self._most} values")

    def _string(self, place: int) -> str:
        value: str
        value, self.place = _scan_string(self._text, place + 1, True)
        return value

    def _loaded(self, text: str, place: int) -> Any:
        try:
            return json.loads(text, parse_constant=refuse_constant)
        except json.JSONDecodeError as error:
            raise self.wrong("a value", place + error.pos) from None

    def _object(self, place: int, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self._closes("}", place):
            return values
        while True:
            if self._text[place : place + 1] != '"':
                raise self.wrong("a name in double quotes", place)
            name = self._string(place)
            place = self.skip(self.place)
            if self._text[place : place + 1] != ":":
                raise self.wrong("':'", place)
            values[name] = self.value(self.skip(place + 1), depth)
            place = self.skip(self.place)
            if self._closes("}", place):
                return values
            place = self._comma(place)

    def _array(self, place: int, depth: int) -> list[Any]:
        values: list[Any] = []
        if self._closes("]", place):
            return values
        while True:
            taken = self._scalars(place)
            if taken:
                values += taken
            else:
                values.append(self.value(place, depth))
            place = self.skip(self.place)
            if self._closes("]", place):
                return values
            place = self._comma(place)

    def _scalars(self, place: int) -> list[Any]:
        """Several at once; none: it is something else, or a single one."""
        found = _SCALARS.match(self._text, place)
        if found is None:
            return []
        taken = found.group()
        if self._text[found.end() : found.end() + 1] != "]":
            taken = taken[: max(taken.rfind(","), 0)]
        if "," not in taken:
            return []
        values: list[Any] = self._loaded(f"[{taken}]", place - 1)
        self._count(len(values))
        self.place = place + len(taken)
        return values

    def _closes(self, bracket: str, place: int) -> bool:
        self.place = place + 1
        return self._text[place : place + 1] == bracket

    def _comma(self, place: int) -> int:
        if self._text[place : place + 1] != ",":
            raise self.wrong("','", place)
        return self.skip(place + 1)


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")

"""<parameter=KEY>VALUE</parameter>: the arguments of Qwen3-Coder's calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.parsers.strict_json import write_json
from headrace.parsers.tools.format import Function
from headrace.parsers.tools.typed import typed_value

PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
_LINE = f"\n{PARAMETER}"
_MOST_PADDING = 1024  # characters around a name; a longer text is none


class Parameters:
    """Reads a function's name and parameters, in a text that grows, up to a place where the
    function may end. Nothing is looked at again for a later place.

    A value ends with its tag, or where a line begins another parameter of the function.
    """

    def __init__(self, functions: Mapping[str, Function], start: int) -> None:
        """start: where the name begins."""
        self._functions = functions
        self._place = start  # what comes next begins there
        self._name: str | None = None
        self._names: Mapping[str, Any] | None = None  # of parameters; None: any
        self._values: dict[str, Any] = {}
        self._key = ""
        self._value = -1  # where the value begins that isn't closed yet
        self._tag = -1  # the last tag that was found
        self._untagged = 0  # no tag begins between the value and here
        self._line = 0  # no line that ends the value begins before
        self._angle = -1  # the last ">" that was found

    def read(self, text: str, end: int) -> bool:
        """Whether all values are closed there."""
        if self._name is None:
            self._read_name(text, end)
        while True:
            if self._value == -1:
                begin = text.find(PARAMETER, self._place, end)
                if begin == -1:
                    return True
                self._place = begin
                key_end = text.find(">", begin, end)
                if key_end == -1:
                    return False
                self._key = text[begin + len(PARAMETER) : key_end]
                self._value = self._line = key_end + 1
            if not self._close_value(text, end):
                return False

    def call(self, text: str, end: int) -> tuple[str, str]:
        """Name and arguments, after `read` of the same; a value that isn't closed ends there."""
        values = dict(self._values)
        if self._value != -1:
            self._take(values, self._key, text[self._value : end])
        elif text.startswith(PARAMETER, self._place):
            self._take(values, text[self._place + len(PARAMETER) : end], "")
        return self._name or "", write_json(values)

    def _read_name(self, text: str, end: int) -> None:
        name_end = text.find(">", self._place, end)
        name = text[self._place : end if name_end == -1 else name_end].strip()
        function = self._functions.get(name)
        if function is not None:
            self._names = function.parameters.get("properties") or {}
        self._name, self._place = name, end if name_end == -1 else name_end + 1

    def _close_value(self, text: str, end: int) -> bool:
        if self._tag < self._value:
            self._tag = text.find(PARAMETER_END, max(self._value, self._untagged), end)
            if self._tag == -1:
                self._untagged = end
        tagged = self._tag != -1
        line = self._find_line(text, self._tag if tagged else end, tagged)
        if line == -1 and not tagged:
            return False
        stop = self._tag if line == -1 else line
        self._take(self._values, self._key, text[self._value : stop])
        self._place = stop + (len(PARAMETER_END) if line == -1 else 1)
        self._value = -1
        return True

    def _find_line(self, text: str, stop: int, is_last: bool) -> int:
        """A line before `stop` that begins a parameter of the function, or -1.

        is_last: the value goes on no further."""
        line = text.find(_LINE, self._line, stop)
        while line != -1:
            begin = line + len(_LINE)
            if self._angle < begin:
                self._angle = text.find(">", begin, stop)
            if self._angle == -1 or self._angle >= stop:
                self._line = stop if is_last else line
                return -1
            if self._is_name(text, begin, self._angle):
                return line
            line = text.find(_LINE, line + 1, stop)
        self._line = stop
        return -1

    def _is_name(self, text: str, begin: int, end: int) -> bool:
        if self._names is None:
            return True
        longest = max(map(len, self._names), default=0)
        return end - begin <= longest + _MOST_PADDING and text[begin:end].strip() in self._names

    def _take(self, values: dict[str, Any], key: str, text: str) -> None:
        key, text = key.strip(), text.removeprefix("\n").removesuffix("\n")
        values[key] = typed_value(self._functions.get(self._name or ""), key, text)

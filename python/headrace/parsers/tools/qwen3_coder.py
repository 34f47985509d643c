"""<function=NAME><parameter=KEY>VALUE</parameter></function>: Qwen3-Coder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.parsers.strict_json import write_json
from headrace.parsers.tools.format import Function, Reading, ToolFormat, literal
from headrace.parsers.tools.schemas import parameters
from headrace.parsers.tools.typed import typed_value

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


class Qwen3Coder(ToolFormat):
    """Values are typed by the function's schema. The outer tags may be missing."""

    markers = (BEGIN, FUNCTION)
    others = (END,)
    text_end = f"\n{PARAMETER_END}\n"

    def begin(self) -> None:
        self._looked = 0  # no end of the function begins before

    def read(self, text: str, final: bool) -> Reading | None:
        start = 0 if text.startswith(FUNCTION) else _skip_space(text, len(BEGIN))
        if not text.startswith(FUNCTION, start):
            waits = not final and FUNCTION.startswith(text[start:])
            return None if waits else Reading(len(BEGIN), None)
        while True:
            end = text.find(FUNCTION_END, max(self._looked, start))
            if end == -1:
                self._looked = max(0, len(text) - len(FUNCTION_END) + 1)
                return self._unclosed(text, start) if final else None
            arguments = self._arguments(text[start + len(FUNCTION) : end])
            if arguments is None:
                ends = self._another_follows(text, end + len(FUNCTION_END), final)
                if ends is None:
                    return None
                if ends:
                    arguments = self._arguments(text[start + len(FUNCTION) : end], closed=True)
            if arguments is not None:
                break
            self._looked = end + 1  # that was in a value
        if not arguments[0]:
            return Reading(end, None)
        return self._closed(text, start, end + len(FUNCTION_END), arguments, final)

    def _unclosed(self, text: str, start: int) -> Reading:
        """At the end of the output: a last value that isn't closed ends with the function."""
        end = text.find(FUNCTION_END, start)
        body = text[start + len(FUNCTION) : end]
        arguments = None if end == -1 else self._arguments(body, closed=True)
        if arguments is None or not arguments[0]:
            return Reading(start + len(FUNCTION), None)
        found = self._closed(text, start, end + len(FUNCTION_END), arguments, final=True)
        assert found is not None
        return found

    @staticmethod
    def _another_follows(text: str, end: int, final: bool) -> bool | None:
        """Whether the call ends here and another one begins; None: not known yet."""
        place = end
        for tag in (END, BEGIN):
            place = _skip_space(text, place)
            if not text.startswith(tag, place):
                return None if not final and tag.startswith(text[place:]) else False
            place += len(tag)
        return True

    def _closed(
        self, text: str, start: int, end: int, call: tuple[str, str], final: bool
    ) -> Reading | None:
        """With the outer end, if there is one."""
        if start == 0:
            return Reading(end, [call])
        behind = _skip_space(text, end)
        if text.startswith(END, behind):
            return Reading(behind + len(END), [call])
        waits = not final and END.startswith(text[behind:])
        return None if waits else Reading(end, [call])

    def _arguments(self, body: str, closed: bool = False) -> tuple[str, str] | None:
        """None if a value isn't closed; `closed`: the last one ends with the body."""
        name, _, rest = body.partition(">")
        function = self.functions.get(name.strip())
        values: dict[str, Any] = {}
        while True:
            _, begin, rest = rest.partition(PARAMETER)
            if not begin:
                return name.strip(), write_json(values)
            key, _, rest = rest.partition(">")
            value, rest, ends = self._value(function, rest)
            if not (ends or closed):
                return None
            value = value.removeprefix("\n").removesuffix("\n")
            values[key.strip()] = typed_value(function, key.strip(), value)

    @staticmethod
    def _value(function: Function | None, rest: str) -> tuple[str, str, bool]:
        """A value, what follows, and whether it ends: with its tag, or where a line begins another
        parameter of the function."""
        value, tag, behind = rest.partition(PARAMETER_END)
        properties = {} if function is None else function.parameters.get("properties") or {}
        place = value.find(f"\n{PARAMETER}")
        while place != -1:
            key, named, _ = value[place + 1 + len(PARAMETER) :].partition(">")
            if named and (function is None or key.strip() in properties):
                return value[:place], rest[place + 1 :], True
            place = value.find(f"\n{PARAMETER}", place + 1)
        return value, behind, bool(tag)

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        calls = " | ".join(f"({self._rule(function)})" for function in functions)
        one = f'"\\n" ({calls}) "{FUNCTION_END}\\n" {text(END)}'
        return f'{one} ("\\n" {text(BEGIN)} {one})*' if several else one

    def _rule(self, function: Function) -> str:
        def one(name: str, value: str) -> str:
            begin = literal(f"{PARAMETER}{name}>\n")
            return f"{begin} {value}"

        head = literal(f"{FUNCTION}{function.name}>\n")
        return f"{head} {parameters(function, one, text_end=self.text_end)}"


def _skip_space(text: str, start: int) -> int:
    return len(text) - len(text[start:].lstrip())

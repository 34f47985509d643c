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
                return Reading(start + len(FUNCTION), None) if final else None
            arguments = self._arguments(text[start + len(FUNCTION) : end])
            if arguments is not None:
                break
            self._looked = end + 1  # that was in a value
        if not arguments[0]:
            return Reading(end, None)
        return self._closed(text, start, end + len(FUNCTION_END), arguments, final)

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

    def _arguments(self, body: str) -> tuple[str, str] | None:
        """None if a value isn't closed."""
        name, _, rest = body.partition(">")
        function = self.functions.get(name.strip())
        values: dict[str, Any] = {}
        while True:
            _, begin, rest = rest.partition(PARAMETER)
            if not begin:
                return name.strip(), write_json(values)
            key, _, rest = rest.partition(">")
            value, closed, rest = rest.partition(PARAMETER_END)
            if not closed:
                return None
            value = value.removeprefix("\n").removesuffix("\n")
            values[key.strip()] = typed_value(function, key.strip(), value)

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

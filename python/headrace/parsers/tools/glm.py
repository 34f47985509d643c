"""<tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>: GLM-4.5 and later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.parsers.strict_json import write_json
from headrace.parsers.tools.format import Function, Reading, ToolFormat, literal
from headrace.parsers.tools.schemas import parameters
from headrace.parsers.tools.typed import typed_value

BEGIN, END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"


class Glm(ToolFormat):
    """Values are typed by the function's schema. An end inside of a value is part of it."""

    markers = (BEGIN,)
    others = (END, KEY, KEY_END, VALUE, VALUE_END)
    text_end = f"{VALUE_END}\n"

    def begin(self) -> None:
        self._looked = len(BEGIN)  # no end begins before
        self._counted = len(BEGIN)
        self._open = 0  # values that are open there

    def read(self, text: str, final: bool) -> Reading | None:
        while True:
            end = text.find(END, self._looked)
            if end == -1:
                self._looked = max(len(BEGIN), len(text) - len(END) + 1)
                return Reading(len(BEGIN), None) if final else None
            self._looked = end + 1
            self._open += text.count(VALUE, self._counted, end)
            self._open -= text.count(VALUE_END, self._counted, end)
            self._counted = end
            if self._open <= 0:
                break
        name, values = self._read_body(text[len(BEGIN) : end])
        call = None if not name or values is None else [(name, write_json(values))]
        return Reading(end + len(END), call)

    def _read_body(self, body: str) -> tuple[str, dict[str, object] | None]:
        """The values are None if they can't be read."""
        name, _, _ = body.partition(KEY)
        place, name = len(name), name.strip()
        values: dict[str, object] = {}
        while (place := body.find(KEY, place)) != -1:
            parts = []
            for before, tag in ((KEY, KEY_END), ("", VALUE), ("", VALUE_END)):
                start = place + len(before)
                end = body.find(tag, start)
                if end == -1:
                    return name, None
                parts.append(body[start:end])
                place = end + len(tag)
            key, between, value = parts
            if between.strip():
                return name, None
            key = key.strip()
            values[key] = typed_value(self.functions.get(name), key, value)
        return name, values

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        calls = " | ".join(f"({self._rule(function, text)})" for function in functions)
        one = f"({calls}) {text(END)}"
        return f'{one} ("\\n" {text(BEGIN)} {one})*' if several else one

    def _rule(self, function: Function, text: Callable[[str], str]) -> str:
        if any(text(tag) != literal(tag) for tag in (KEY, KEY_END, VALUE, VALUE_END)):
            raise NotImplementedError

        def one(name: str, value: str) -> str:
            begin = literal(f"{KEY}{name}{KEY_END}\n{VALUE}")
            return f"{begin} {value}"

        head = literal(f"{function.name}\n")
        return f"{head} {parameters(function, one, text_end=self.text_end)}"

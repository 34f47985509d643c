"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen2.5 and Qwen3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.parsers.strict_json import StringTracker, write_json
from headrace.parsers.tools.format import Function, Reading, ToolFormat, head_in, literal
from headrace.parsers.tools.json_calls import read_call
from headrace.parsers.tools.schemas import json_rule

BEGIN, END = "<tool_call>", "</tool_call>"


class Hermes(ToolFormat):
    """An end inside of a JSON string is part of it. A call that isn't closed is read to the end."""

    markers = (BEGIN,)
    others = (END,)

    def begin(self) -> None:
        self._tracker = StringTracker(len(BEGIN))

    def read(self, text: str, final: bool) -> Reading | None:
        end = self._tracker.find(text, END)
        if end == -1 and not final:
            return None
        body = text[len(BEGIN) : None if end == -1 else end]
        length = len(text) if end == -1 else end + len(END)
        try:
            return Reading(length, [self.read_body(body.strip())])
        except ValueError:
            # What isn't closed may have a whole call behind it.
            following = text.find(BEGIN, len(BEGIN)) if end == -1 else -1
            return Reading(length if following == -1 else following, None)

    def arguments_at(self, text: str) -> tuple[str, int] | None:
        return head_in(self.functions, _head, text, len(BEGIN))

    def read_body(self, body: str) -> tuple[str, str]:
        """Name and arguments. Raises ValueError."""
        return read_call(body)

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        calls = " | ".join(
            f"({literal(_head(f.name))} {json_rule(f.parameters)})" for f in functions
        )
        one = f'({calls}) "}}\\n" {text(END)}'
        return f'{one} ("\\n" {text(BEGIN)} {one})*' if several else one


def _head(name: str) -> str:
    return f'\n{{"name": {write_json(name)}, "arguments": '

"""{"name": ..., "parameters": {...}}: Llama 3.1 to 3.3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.parsers.strict_json import BracketTracker, write_json
from headrace.parsers.tools.format import Function, Reading, ToolFormat, head_in
from headrace.parsers.tools.json_calls import read_call
from headrace.parsers.tools.schemas import calls_in_json

TAG = "<|python_tag|>"


class Llama3Json(ToolFormat):
    """An output that begins with an object, or <|python_tag|>; several calls have "; " between."""

    markers = ("{", TAG)
    at_start = True
    separators = ";"

    def begin(self) -> None:
        self._tracker: BracketTracker | None = None

    def read(self, text: str, final: bool) -> Reading | None:
        if self._tracker is None:
            start = len(TAG) if text.startswith(TAG) else 0
            start = len(text) - len(text[start:].lstrip())
            if start == len(text) and not final:
                return None
            if not text.startswith("{", start):
                return Reading(len(TAG), None)
            self._tracker = BracketTracker(start)
            self._start = start
        end = self._tracker.find_end(text)
        if end == -1:
            return None
        try:
            name, arguments = read_call(text[self._start : end])
            # An answer in JSON may have a name alone, too.
            known = not self.functions or name in self.functions
            return Reading(end, [(name, arguments)] if known else None)
        except ValueError:
            return Reading(end, None)

    def arguments_at(self, text: str) -> tuple[str, int] | None:
        return head_in(self.functions, _head, text, 1) if text.startswith("{") else None

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        one = calls_in_json(functions, _head)
        return f'{one} ("; {{" {one})*' if several else one


def _head(name: str) -> str:
    return f'"name": {write_json(name)}, "parameters": '

"""[TOOL_CALLS]: a list of objects, or a name with its arguments from tokenizer v11 on."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Sequence

from headrace.parsers.strict_json import BracketTracker, read_json, write_json
from headrace.parsers.tools.format import (
    Function,
    Reading,
    ToolFormat,
    head_in,
    literal,
    skip_space,
)
from headrace.parsers.tools.json_calls import call_of
from headrace.parsers.tools.schemas import calls_in_json, json_rule

BEGIN, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
MAX_NAME_CHARS = 256  # with what else comes before the arguments
_HEAD = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\]\w*)?\s*(?:\[ARGS\])?\s*")
_ID_CHARS = string.ascii_letters + string.digits


class Mistral(ToolFormat):
    """Both ways to write calls. Ids have the nine characters that the models' templates ask for."""

    markers = (BEGIN,)
    others = (ARGUMENTS, CALL_ID)

    def begin(self) -> None:
        self._tracker: BracketTracker | None = None
        self._start = 0
        self._head = len(BEGIN)  # where the name begins, if there is one

    def read(self, text: str, final: bool) -> Reading | None:
        if self._tracker is None:
            self._start = self._find_value(text, final)
            if self._start == -1:
                waits = not final and len(text) <= self._head + MAX_NAME_CHARS
                return None if waits else Reading(len(BEGIN), None)
            self._tracker = BracketTracker(self._start)
        end = self._tracker.find_end(text)
        if end == -1:
            return Reading(len(BEGIN), None) if final else None
        try:
            calls = self._calls(text[self._head : self._start], text[self._start : end])
        except ValueError:
            return Reading(end, None)
        return Reading(end, calls)

    def _find_value(self, text: str, final: bool) -> int:
        """Where the list or the arguments begin; -1: not yet, or nowhere."""
        start = self._head
        while True:
            start = skip_space(text, start)
            if not text.startswith(BEGIN, start):
                break
            self._head = start = start + len(BEGIN)  # it is written twice
        if not final and BEGIN.startswith(text[start : start + len(BEGIN)]):
            return -1
        if text.startswith("[", start):
            return start
        return text.find("{", start, self._head + MAX_NAME_CHARS)

    @staticmethod
    def _calls(head: str, value: str) -> list[tuple[str, str]]:
        """Raises ValueError."""
        if value.startswith("["):
            items = read_json(value)
            if not items:
                raise ValueError("an empty list")
            return [call_of(item) for item in items]
        if not head.strip():
            return [call_of(read_json(value))]
        found = _HEAD.fullmatch(head)
        if found is None:
            raise ValueError("no name")
        return [(found.group(1), write_json(read_json(value)))]

    def arguments_at(self, text: str) -> tuple[str, int] | None:
        return head_in(self.functions, lambda name: f" [{_head(name)}", text, len(BEGIN))

    def new_id(self) -> str:
        return "".join(secrets.choice(_ID_CHARS) for _ in range(9))

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        one = calls_in_json(functions, _head)
        more = f'(", " {one})*' if several else ""
        return f'" [" {one} {more} "]"'


class MistralArgs(Mistral):
    """The same; guided calls are written with a name and [ARGS]: tokenizer v11 and later."""

    def arguments_at(self, text: str) -> tuple[str, int] | None:
        return head_in(self.functions, lambda name: name + ARGUMENTS, text, len(BEGIN))

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        calls = " | ".join(
            f"({literal(f.name)} {text(ARGUMENTS)} {json_rule(f.parameters)})" for f in functions
        )
        return f"({calls}) ({text(BEGIN)} ({calls}))*" if several else f"({calls})"


def _head(name: str) -> str:
    return f'{{"name": {write_json(name)}, "arguments": '

"""<function=NAME><parameter=KEY>VALUE</parameter></function>: Qwen3-Coder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.parsers.tools.format import Function, Reading, ToolFormat, literal, skip_space
from headrace.parsers.tools.qwen3_parameters import PARAMETER, PARAMETER_END, Parameters
from headrace.parsers.tools.schemas import parameters

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"


class Qwen3Coder(ToolFormat):
    """Values are typed by the function's schema. The outer tags may be missing."""

    markers = (BEGIN, FUNCTION)
    others = (END,)
    text_end = f"\n{PARAMETER_END}\n"

    def begin(self) -> None:
        self._looked = 0  # no end of the function begins before
        self._parameters: Parameters | None = None
        self._space: dict[int, int] = {}  # where whitespace begins, and how far it goes

    def read(self, text: str, final: bool) -> Reading | None:
        start = 0 if text.startswith(FUNCTION) else self._skip_space(text, len(BEGIN))
        if not text.startswith(FUNCTION, start):
            return (
                None if not final and _may_be(FUNCTION, text, start) else Reading(len(BEGIN), None)
            )
        body = start + len(FUNCTION)
        if self._parameters is None:
            self._parameters = Parameters(self.functions, body)
        while True:
            end = text.find(FUNCTION_END, max(self._looked, start))
            if end == -1:
                self._looked = max(0, len(text) - len(FUNCTION_END) + 1)
                return self._unclosed(text, start) if final else None
            if self._parameters.read(text, end):
                break
            ends = self._another_follows(text, end + len(FUNCTION_END), final)
            if ends is None:
                return None
            if ends:
                break
            self._looked = end + 1  # that was in a value
        call = self._parameters.call(text, end)
        if not call[0]:
            return Reading(end, None)
        return self._closed(text, start, end + len(FUNCTION_END), call, final)

    def _unclosed(self, text: str, start: int) -> Reading:
        """At the end of the output: a last value that isn't closed ends with the function."""
        body, end = start + len(FUNCTION), text.find(FUNCTION_END, start)
        parameters = Parameters(self.functions, body)
        if end != -1:
            parameters.read(text, end)
            call = parameters.call(text, end)
            if call[0]:
                found = self._closed(text, start, end + len(FUNCTION_END), call, final=True)
                assert found is not None
                return found
        return Reading(body, None)

    def _another_follows(self, text: str, end: int, final: bool) -> bool | None:
        """Whether the call ends here and another one begins; None: not known yet."""
        place = end
        for tag in (END, BEGIN):
            place = self._skip_space(text, place)
            if not text.startswith(tag, place):
                return None if not final and _may_be(tag, text, place) else False
            place += len(tag)
        return True

    def _closed(
        self, text: str, start: int, end: int, call: tuple[str, str], final: bool
    ) -> Reading | None:
        """With the outer end, if there is one."""
        if start == 0:
            return Reading(end, [call])
        behind = self._skip_space(text, end)
        if text.startswith(END, behind):
            return Reading(behind + len(END), [call])
        return None if not final and _may_be(END, text, behind) else Reading(end, [call])

    def _skip_space(self, text: str, start: int) -> int:
        """skip_space, in a text that grows."""
        place = self._space[start] = skip_space(text, self._space.get(start, start))
        return place

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


def _may_be(tag: str, text: str, start: int) -> bool:
    """Whether the text from `start` on is a beginning of the tag, or all of it."""
    return tag.startswith(text[start : start + len(tag)])

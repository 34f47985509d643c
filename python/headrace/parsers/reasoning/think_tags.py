"""Thinking between two markers: <think> ... </think>."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from headrace.parsers.markers import Markers, NewlineTrim
from headrace.parsers.stage import Piece, Stage, plain, reasoning


class Start(Enum):
    """Where an output begins."""

    THINKING = auto()  # the prompt has opened it
    CONTENT = auto()  # it is closed, or switched off
    EITHER = auto()  # the model may open it first thing


class ThinkTags(Stage):
    """Everything up to the first `end` is reasoning; later ones are text, unless nothing but space
    comes before them: then they are left out. If the thinking has no `end`, what a `call` begins is
    text.

    A `begin` first thing in the output is left out, unless it begins as content. An output that
    ends while it thinks is all reasoning.
    """

    def __init__(self, begin: str, end: str, start: Start, *, trim: bool, call: str = "") -> None:
        """trim: without the newlines around the reasoning and before the content.
        call: where a call begins; "": calls are part of the thinking."""
        self._begin = begin
        self._end = end
        self._call = call
        self._closing = Markers(end)
        self._ends = Markers(end, call) if call else self._closing
        self._since_call: list[str] = []  # what is held back, from the first `call` on
        self._leading = True  # no text of the content so far
        self._opening = start is not Start.CONTENT
        self._thinking = start is Start.THINKING
        self._buffer = ""
        self._trim = trim
        self._trim_reasoning = NewlineTrim(leading=trim, trailing=trim)
        self._trim_content = NewlineTrim(leading=False, trailing=False)

    @property
    def held(self) -> int:
        return len(self._buffer) + self._trim_reasoning.held

    def push(self, text: str) -> Iterable[Piece]:
        self._buffer += text
        if self._opening and not self._open(self._buffer.lstrip()):
            return []
        return self._read()

    def finish(self) -> Iterable[Piece]:
        self._opening = False
        pieces = self._read(final=True)
        rest, self._buffer = self._buffer, ""
        if self._since_call:
            return pieces + plain("".join([*self._since_call, rest]))
        return pieces + reasoning(self._trim_reasoning.push(rest))

    def _open(self, text: str) -> bool:
        """Whether it is known by now if the output begins with `begin`."""
        if text.startswith(self._begin):
            self._buffer = text[len(self._begin) :]
            self._thinking = True
        elif self._begin.startswith(text):
            return False
        self._opening = False
        return True

    def _read(self, final: bool = False) -> list[Piece]:
        pieces: list[Piece] = []
        if self._thinking:
            pieces = self._think()
            if self._thinking:
                return pieces
            self._trim_content = NewlineTrim(leading=self._trim, trailing=False)
        if self._leading and not self._drop_ends(final):
            return pieces
        text, self._buffer = self._buffer, ""
        return pieces + plain(self._trim_content.push(text))

    def _think(self) -> list[Piece]:
        """Reads on to the end of the thinking."""
        pieces: list[Piece] = []
        if not self._since_call:
            thought, marker, self._buffer = self._ends.split(self._buffer)
            pieces = reasoning(self._trim_reasoning.push(thought))
            self._thinking = marker != self._end
            if marker != self._call or not marker:
                return pieces
            self._since_call.append(marker)
        thought, marker, self._buffer = self._closing.split(self._buffer)
        self._since_call.append(thought)
        if marker is None:
            return pieces
        self._thinking = False
        thought, self._since_call = "".join(self._since_call), []
        return pieces + reasoning(self._trim_reasoning.push(thought))

    def _drop_ends(self, final: bool) -> bool:
        """Leaves out an `end` right at the start of the content; whether it is known by now."""
        while (text := self._buffer.lstrip()).startswith(self._end):
            self._buffer = text[len(self._end) :]
            self._trim_content = NewlineTrim(leading=self._trim, trailing=False)
        if not final and self._end.startswith(text):
            return False
        self._leading = False
        return True

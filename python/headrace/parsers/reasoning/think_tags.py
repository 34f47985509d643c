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
    """Everything up to the first `end` is reasoning; later ones are text.

    A `begin` first thing in the output is left out, unless it begins as content. An output that
    ends while it thinks is all reasoning.
    """

    def __init__(self, begin: str, end: str, start: Start, *, trim: bool) -> None:
        """`trim`: without the newlines around the reasoning and before the content."""
        self._begin = begin
        self._end = Markers(end)
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
        pieces = self._read()
        rest, self._buffer = self._buffer, ""
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

    def _read(self) -> list[Piece]:
        pieces: list[Piece] = []
        if self._thinking:
            thought, marker, self._buffer = self._end.split(self._buffer)
            pieces = reasoning(self._trim_reasoning.push(thought))
            if marker is None:
                return pieces
            self._thinking = False
            self._trim_content = NewlineTrim(leading=self._trim, trailing=False)
        text, self._buffer = self._buffer, ""
        return pieces + plain(self._trim_content.push(text))

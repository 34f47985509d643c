"""The stage that takes calls out of a text."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.parsers.markers import Markers
from headrace.parsers.stage import Kind, Piece, Stage, content, plain
from headrace.parsers.tool_call import FunctionCall, ToolCall
from headrace.parsers.tools.format import Reading, ToolFormat


class CallStage(Stage):
    """Takes out the calls. One that can't be read stays as content.

    Whitespace right before a call and right behind it is dropped. A call comes when it is complete.
    """

    def __init__(self, calls: ToolFormat) -> None:
        self._format = calls
        self._markers = Markers(*calls.markers)
        self._buffer = ""  # begins with a marker while a call is being read
        self._reading = False
        self._space = ""  # at the end of the text so far: dropped if a call follows
        self._before: list[str] = []  # the text since the last call
        self._called = False  # nothing but whitespace since the last call
        self._closed = False  # of a format with calls at the start: the text has begun

    def push(self, text: str) -> Iterable[Piece]:
        self._buffer += text
        return self._run(final=False)

    def finish(self) -> Iterable[Piece]:
        pieces = self._run(final=True)
        return pieces + plain(self._space)

    def _run(self, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        more = True
        while more and self._buffer:
            if self._reading:
                more = self._read(final, pieces)
            elif self._format.at_start:
                more = self._seek_at_start(final, pieces)
            else:
                more = self._seek(final, pieces)
        return pieces

    def _seek(self, final: bool, pieces: list[Piece]) -> bool:
        """Looks for the next marker; false: not without more text."""
        text, marker, rest = self._markers.split(self._buffer)
        if marker is None:
            text, rest = (self._buffer, "") if final else (text, rest)
            self._buffer = rest
            pieces += self._text(text)
            return False
        pieces += self._text(text)
        self._buffer = rest
        if self._format.may_follow("".join(self._before)):
            self._begin(marker + rest)
        else:
            pieces += self._text(marker)
        return True

    def _seek_at_start(self, final: bool, pieces: list[Piece]) -> bool:
        if not self._closed:
            skipped = self._format.separators if self._called else ""
            text = self._buffer.lstrip(" \t\r\n" + skipped)
            if any(text.startswith(marker) for marker in self._format.markers):
                self._begin(text)
                return True
            if not final and any(marker.startswith(text) for marker in self._format.markers):
                return False
            self._closed = True
        text, self._buffer = self._buffer, ""
        pieces += self._text(text)
        return False

    def _begin(self, text: str) -> None:
        self._buffer, self._reading = text, True
        self._format.begin()

    def _read(self, final: bool, pieces: list[Piece]) -> bool:
        reading = self._format.read(self._buffer, final)
        if reading is None:
            if not final:
                return False
            reading = Reading(len(self._buffer), None)
        raw, self._buffer = self._buffer[: reading.length], self._buffer[reading.length :]
        self._reading = False
        self._before.clear()
        self._called = reading.calls is not None
        if reading.calls is None:
            self._closed = True
            pieces += plain(self._space) + content(raw)
        else:
            pieces += [self._call(*call) for call in reading.calls]
        self._space = ""
        return True

    def _call(self, name: str, arguments: str) -> Piece:
        call = ToolCall(self._format.new_id(), FunctionCall(name, arguments))
        return Piece(Kind.TEXT, call=call)

    def _text(self, text: str) -> list[Piece]:
        """Text that is no call, but for the whitespace at its end."""
        self._before.append(text)
        text = self._space + text
        if self._called:
            text = text.lstrip()
            self._called = not text
        kept = text.rstrip()
        self._space = text[len(kept) :]
        return plain(kept)

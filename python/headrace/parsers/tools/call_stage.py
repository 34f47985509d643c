"""The stage that takes calls out of a text."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.parsers.markers import Markers
from headrace.parsers.stage import Kind, Piece, Stage, content, plain
from headrace.parsers.strict_json import BracketTracker
from headrace.parsers.tool_call import FunctionCall, ToolCall
from headrace.parsers.tools.format import Reading, ToolFormat

# Markers of an output that begin no call; behind them all is text. Each may be looked at to the end
# of the output.
_MOST_FAILED = 100


class CallStage(Stage):
    """Takes out the calls. One that can't be read stays as content.

    Whitespace right before a call and right behind it is dropped. A call comes when it is complete;
    the first one behind a marker, if it is guided, comes with its arguments as they are written,
    whole or not.
    """

    def __init__(self, calls: ToolFormat) -> None:
        self._format = calls
        self._markers = Markers(*calls.markers)
        self._buffer = ""  # begins with a marker while a call is being read
        self._reading = False
        self._arguments: _Arguments | None = None  # of a guided call that has begun
        self._space = ""  # at the end of the text so far: dropped if a call follows
        self._before: list[str] = []  # the text since the last call
        self._failed = 0
        self._called = False  # nothing but whitespace since the last call
        self._closed = False  # of a format with calls at the start: the text has begun

    @property
    def held(self) -> int:
        return len(self._buffer) + len(self._space)

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
            if self._failed >= _MOST_FAILED:
                text, self._buffer = self._buffer, ""
                pieces += self._text(text)
            elif self._reading:
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
        self._before = ["".join(self._before)]
        if self._format.may_follow(self._before[0]):
            self._begin(marker + rest)
        else:
            self._failed += 1
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
        self._buffer, self._reading, self._arguments = text, True, None
        self._format.begin()

    def _read(self, final: bool, pieces: list[Piece]) -> bool:
        if self._format.guided:
            pieces += self._told()
        reading = self._format.read(self._buffer, final)
        if reading is None:
            if not final:
                return False
            reading = Reading(len(self._buffer), None)
        begun, self._arguments = self._arguments, None
        # A guided call that was cut ends the output: what is left of it is no text.
        cut = final and begun is not None and reading.calls is None
        length = len(self._buffer) if cut else reading.length
        raw, self._buffer = self._buffer[:length], self._buffer[length:]
        self._reading = False
        self._before.clear()
        self._called = reading.calls is not None or begun is not None
        if begun is not None:
            pieces += [self._call(*call) for call in (reading.calls or [])[1:]]
        elif reading.calls is None:
            self._failed += 1
            self._closed = True
            pieces += plain(self._space) + content(raw)
        else:
            pieces += [self._call(*call) for call in reading.calls]
        self._space = ""
        return True

    def _told(self) -> list[Piece]:
        """What is new of the guided call in the buffer."""
        pieces = []
        if self._arguments is None:
            found = self._format.arguments_at(self._buffer)
            if found is None:
                return []
            self._arguments = _Arguments(found[1])
            pieces.append(self._call(found[0], ""))
        text = self._arguments.take(self._buffer)
        if text:
            more = ToolCall("", FunctionCall("", text))
            pieces.append(Piece(Kind.TEXT, call=more))
        return pieces

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


class _Arguments:
    """The object of a call's arguments in a text that grows."""

    def __init__(self, start: int) -> None:
        self._tracker = BracketTracker(start)
        self._taken = start
        self._ended = False

    def take(self, text: str) -> str:
        """What is new of it, as it is written."""
        if self._ended:
            return ""
        end = self._tracker.find_end(text)
        self._ended = end != -1
        stop = end if self._ended else len(text)
        new, self._taken = text[self._taken : stop], stop
        return new

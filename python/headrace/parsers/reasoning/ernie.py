"""What ERNIE's thinking models write after </think>."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.parsers.markers import Markers
from headrace.parsers.stage import Piece, Stage, plain

TOOL_CALL = "<tool_call>"
RESPONSE, RESPONSE_END = "<response>", "</response>"


class ResponseTags(Stage):
    """ernie-x1: the content is what the first <response> holds, to the end if it isn't closed.

    Text outside is dropped, and so is all of it if a <tool_call> comes first.
    """

    def __init__(self) -> None:
        self._opening = Markers(RESPONSE, TOOL_CALL)
        self._closing = Markers(RESPONSE_END)
        self._inside = False
        self._over = False
        self._buffer = ""

    @property
    def held(self) -> int:
        return len(self._buffer)

    def push(self, text: str) -> Iterable[Piece]:
        if self._over:
            return []
        self._buffer += text
        if not self._inside:
            _, marker, self._buffer = self._opening.split(self._buffer)
            self._inside = marker == RESPONSE
            self._over = marker == TOOL_CALL
            if not self._inside:
                return []
        said, marker, self._buffer = self._closing.split(self._buffer)
        self._inside, self._over = marker is None, marker is not None
        return plain(said)

    def finish(self) -> Iterable[Piece]:
        return plain(self._buffer) if self._inside else []


class NoLeadingCalls(Stage):
    """ernie-45-vl-thinking: no content if a <tool_call> comes first, after newlines at most.

    Otherwise all of the text is content, later calls too. Newlines alone are none.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._known = False
        self._dropped = False

    @property
    def held(self) -> int:
        return len(self._buffer)

    def push(self, text: str) -> Iterable[Piece]:
        if self._known:
            return [] if self._dropped else plain(text)
        self._buffer += text
        start = self._buffer.lstrip("\n")
        if TOOL_CALL.startswith(start):  # also: nothing yet
            self._known = self._dropped = start == TOOL_CALL
            return []
        self._known = True
        self._dropped = start.startswith(TOOL_CALL)
        return [] if self._dropped else plain(self._buffer)

    def finish(self) -> Iterable[Piece]:
        return plain(self._buffer) if not self._known and self._buffer.strip("\n") else []

"""Text that comes in pieces, broken between words at the width of a terminal."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Callable

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")
_MIN_WIDTH = 20  # a terminal that is narrower breaks lines itself


class Wrapper:
    """Writes text by `write`. A word that comes in pieces moves to the next line as a whole, so the
    last word waits for its end: `flush` writes it.
    """

    def __init__(self, write: Callable[[str], object], width: int | None = None) -> None:
        self._write = write
        self._width = width or shutil.get_terminal_size().columns
        self._column = 0
        self._spaces = ""
        self._word = ""

    def feed(self, text: str) -> None:
        if self._width < _MIN_WIDTH:
            self._write(text)
            return
        for piece in _PIECES.findall(text):
            if piece == "\n":
                self.flush()
                self._write("\n")
                self._column = 0
            elif piece.isspace():
                self.flush_word()
                self._spaces += piece
            else:
                self._add(piece)

    def flush(self) -> None:
        """Writes what is still held."""
        self.flush_word()
        self._put(self._spaces)
        self._spaces = ""

    def flush_word(self) -> None:
        if not self._word:
            return
        length = text_width(self._word)
        is_broken = self._column and self._column + len(self._spaces) + length > self._width
        if is_broken and length <= self._width:
            self._write("\n")
            self._column = 0
        else:
            self._put(self._spaces)
        self._put(self._word)
        self._spaces = self._word = ""

    def _add(self, piece: str) -> None:
        """Wide characters are words of their own: Chinese breaks anywhere."""
        for character in piece:
            if text_width(character) == 2:
                self.flush_word()
            self._word += character
            if text_width(character) == 2:
                self.flush_word()

    def _put(self, text: str) -> None:
        self._write(text)
        column = self._column + text_width(text)
        self._column = (column - 1) % self._width + 1 if column else 0  # a full line isn't left yet


def text_width(text: str) -> int:
    """Columns of a terminal."""
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1

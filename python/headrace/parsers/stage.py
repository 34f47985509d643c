"""The hold-back machine: stages that take the text of an output in pieces.

Each stage turns text into pieces of what it recognises. What all its pieces say together depends on
the text alone, never on how it was cut: a stage holds back the text it can't judge yet, and only
that. An output read at its end goes through the same stages in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from headrace.parsers.tool_call import ToolCall


class Kind(Enum):
    """What a piece of text is."""

    REASONING = auto()
    TEXT = auto()  # for the next stage; content, after the last one
    CONTENT = auto()  # content, whatever stages are left


@dataclass(slots=True, frozen=True)
class Piece:
    """Some text, or a whole call."""

    kind: Kind
    text: str = ""
    call: ToolCall | None = None


def reasoning(text: str) -> list[Piece]:
    return [Piece(Kind.REASONING, text)] if text else []


def plain(text: str) -> list[Piece]:
    return [Piece(Kind.TEXT, text)] if text else []


def content(text: str) -> list[Piece]:
    return [Piece(Kind.CONTENT, text)] if text else []


class Stage(Protocol):
    """One pass over the text of one output. Not thread safe."""

    @property
    def held(self) -> int:
        """About how many characters it looks through again, or copies, when more text comes."""
        ...

    def push(self, text: str) -> Iterable[Piece]:
        """Takes more text."""
        ...

    def finish(self) -> Iterable[Piece]:
        """No more text: gives what was held back."""
        ...

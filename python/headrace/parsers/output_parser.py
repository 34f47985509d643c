"""An output's text, taken apart: content, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.parsers.stage import Kind, Piece, Stage
from headrace.parsers.tool_call import ToolCall, joined_calls


@dataclass(slots=True)
class Parsed:
    """What is new in an output, or all of it."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)

    def __add__(self, following: Parsed) -> Parsed:
        return Parsed(
            self.content + following.content,
            self.reasoning + following.reasoning,
            joined_calls([*self.tool_calls, *following.tool_calls]),
        )


class OutputParser:
    """Sends the text of one output through stages. Not thread safe.

    The results of all `push` calls and of `finish`, added up, don't depend on how the text was cut.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = [_Paced(stage) for stage in stages]
        self._calls = 0

    def push(self, text: str) -> Parsed:
        """Takes more text; what it settles."""
        return self._collect(self._through(0, [Piece(Kind.TEXT, text)] if text else []))

    def finish(self) -> Parsed:
        """No more text: what was held back."""
        result = Parsed()
        for place, stage in enumerate(self._stages):
            result += self._collect(self._through(place + 1, stage.finish()))
        return result

    def _through(self, place: int, pieces: Iterable[Piece]) -> Iterable[Piece]:
        """The pieces that the stages from `place` on make of these."""
        for stage in self._stages[place:]:
            pieces = _feed(stage, pieces)
        return pieces

    def _collect(self, pieces: Iterable[Piece]) -> Parsed:
        result = Parsed()
        for piece in pieces:
            if piece.call is not None:
                self._calls += not piece.call.continues
                piece.call.index = self._calls - 1
                result.tool_calls.append(piece.call)
            elif piece.kind is Kind.REASONING:
                result.reasoning += piece.text
            else:
                result.content += piece.text
        result.tool_calls = joined_calls(result.tool_calls)
        return result


_MUCH = 4096  # characters that a stage holds back
_PACE = 32


class _Paced:
    """A stage that holds back much text gets more of it in larger pieces, so that the time for all
    of an output grows as its length does."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._waiting: list[str] = []
        self._size = 0

    def push(self, text: str) -> Iterable[Piece]:
        for start in range(0, len(text), _MUCH):  # a stage copies what follows each call
            yield from self._push(text[start : start + _MUCH])

    def _push(self, text: str) -> Iterable[Piece]:
        self._waiting.append(text)
        self._size += len(text)
        held = self._stage.held
        if held > _MUCH and self._size < held // _PACE:
            return ()
        return self._stage.push(self._taken())

    def finish(self) -> Iterable[Piece]:
        if self._waiting:
            yield from self._stage.push(self._taken())
        yield from self._stage.finish()

    def _taken(self) -> str:
        text = "".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        return text


def _feed(stage: _Paced, pieces: Iterable[Piece]) -> Iterable[Piece]:
    for piece in pieces:
        if piece.kind is Kind.TEXT and piece.call is None:
            yield from stage.push(piece.text)
        else:
            yield piece

"""What an output with stop strings gives, found anew after every token, from all of its text."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace import _core


class Match(NamedTuple):
    """Where a stop string was found, in characters."""

    string: str
    start: int
    end: int


class OutputOracle:
    """As _core.OutputText, by the plainest means."""

    def __init__(
        self, start: Any, stops: list[str], *, min_tokens: int, keeps_string: bool
    ) -> None:
        """start: makes fresh detokenizers."""
        self._start = start
        self._detokenizer: _core.Detokenizer = start()
        self._stops = stops
        self._least = min_tokens
        self._keeps = keeps_string
        self._ids: list[int] = []
        self._text = ""
        self._gone = 0  # characters
        self._ends: list[int | None] = []  # of the tokens' texts; None: not known yet
        self.match: Match | None = None
        self.released = 0

    def push(self, token_id: int) -> str:
        if self.match is not None:
            return ""
        self._ids.append(token_id)
        self._ends.append(None)
        text = self._detokenizer.push(token_id)
        return self._take(text, ends_known=not self._detokenizer.holding, last=False)

    def finish(self) -> str:
        if self.match is not None:
            return ""
        return self._take(self._detokenizer.finish(), ends_known=True, last=True)

    def _take(self, text: str, *, ends_known: bool, last: bool) -> str:
        begin = len(self._text)
        self._text += text
        if ends_known:
            self._ends = [len(self._text) if end is None else end for end in self._ends]
        if len(self._ids) >= self._least:
            self.match = self._found(begin)
        if self.match is not None:
            end = self.match.end if self._keeps else self.match.start
            self.released = self._kept(self._text[:end])
        else:
            end = len(self._text) - (0 if last else self._held())
            while self.released < len(self._ids):
                known = self._ends[self.released]
                if self._stops and (known is None or known > end):
                    break
                self.released += 1
        given, self._gone = self._text[self._gone : end], max(end, self._gone)
        return given

    def _found(self, begin: int) -> Match | None:
        """The stop string that ends first in the text from there on, the longest of several."""
        for end in range(begin + 1, len(self._text) + 1):
            ending = [stop for stop in self._stops if self._text[:end].endswith(stop)]
            if ending:
                longest = max(ending, key=len)
                return Match(longest, end - len(longest), end)
        return None

    def _held(self) -> int:
        """Characters at the end that may begin a stop string."""
        starts = {stop[:length] for stop in self._stops for length in range(1, len(stop))}
        return max((len(start) for start in starts if self._text.endswith(start)), default=0)

    def _kept(self, text: str) -> int:
        """How many tokens have a text that the output's begins with."""
        if self._keeps:
            return len(self._ids)
        counts = range(len(self._ids), self.released, -1)
        return next((n for n in counts if text.startswith(self._decoded(n))), self.released)

    def _decoded(self, count: int) -> str:
        detokenizer = self._start()
        return "".join([*map(detokenizer.push, self._ids[:count]), detokenizer.finish()])

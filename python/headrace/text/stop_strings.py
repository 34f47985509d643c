"""Finds stop strings in text that arrives piece by piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class StopMatch:
    """Where a stop string was found, in characters from the start of the output."""

    string: str
    start: int
    end: int


class StopStrings:
    """The search automaton (Aho-Corasick) of a set of stop strings. Immutable, shareable."""

    def __init__(self, strings: Sequence[str]) -> None:
        """REQUIRES: no empty string."""
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self._depth = [0]
        self._match: list[str | None] = [None]  # the longest stop string that ends in the state
        for string in strings:
            self._insert(string)
        self._link()

    def _insert(self, string: str) -> None:
        state = 0
        for char in string:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._fail.append(0)
                self._depth.append(self._depth[state] + 1)
                self._match.append(None)
            state = self._next[state][char]
        self._match[state] = string

    def _link(self) -> None:
        # What may still grow into a stop string: the state's own text, unless nothing continues it.
        self._held = list(self._depth)
        queue = deque([0])
        while queue:
            state = queue.popleft()
            for char, child in self._next[state].items():
                if state != 0:
                    self._fail[child] = self.step(self._fail[state], char)
                fail = self._fail[child]
                if self._match[child] is None:
                    self._match[child] = self._match[fail]
                if not self._next[child]:
                    self._held[child] = self._held[fail]
                queue.append(child)

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        while char not in self._next[state]:
            if state == 0:
                return 0
            state = self._fail[state]
        return self._next[state][char]

    def match(self, state: int) -> str | None:
        """The longest stop string that ends here."""
        return self._match[state]

    def held(self, state: int) -> int:
        """How many of the last characters may be the start of a stop string."""
        return self._held[state]


class StopScanner:
    """One output's walk through the automaton.

    The match found is the one that ends first; of several that end at the same character, the
    longest. So neither depends on how the text is cut into pieces.
    """

    __slots__ = ("_held", "_length", "_state", "_strings")

    def __init__(self, strings: StopStrings) -> None:
        self._strings = strings
        self._state = 0
        self._length = 0
        self._held = 0

    def scan(self, text: str, may_stop: bool = True) -> StopMatch | None:
        """Takes more text. With `may_stop` false, matches that end in it don't count."""
        strings, state = self._strings, self._state
        for offset, char in enumerate(text, start=self._length + 1):
            state = strings.step(state, char)
            found = strings.match(state) if may_stop else None
            if found is not None:
                return StopMatch(found, offset - len(found), offset)
        self._state = state
        self._length += len(text)
        self._held = strings.held(state)
        return None

    @property
    def settled(self) -> int:
        """Characters from the start that no later text can make part of a stop string."""
        return self._length - self._held


class StopText:
    """Text on its way out, of which what may begin a stop string is held back."""

    __slots__ = ("_held", "_keeps_string", "_length", "_scanner", "match")

    def __init__(self, strings: StopStrings, keeps_string: bool = False) -> None:
        """keeps_string: the stop string that ends the text is part of it."""
        self._scanner = StopScanner(strings)
        self._keeps_string = keeps_string
        self._held = ""
        self._length = 0  # of all text that came
        self.match: StopMatch | None = None

    @property
    def length(self) -> int:
        """Of all text that came, in characters."""
        return self._length

    @property
    def settled(self) -> int:
        """Characters that have gone out, or would have."""
        return self._length - len(self._held)

    @property
    def end(self) -> int | None:
        """Where the text ends because of the stop string; None: it doesn't so far."""
        if self.match is None:
            return None
        return self.match.end if self._keeps_string else self.match.start

    def push(self, text: str, may_stop: bool) -> str:
        """What can go out now: nothing later takes it back."""
        self._held += text
        self._length += len(text)
        self.match = self._scanner.scan(text, may_stop)
        end = self.end
        return self._take(self._scanner.settled if end is None else end)

    def finish(self, text: str, may_stop: bool) -> str:
        """No more text."""
        return self.push(text, may_stop) + ("" if self.match else self._take(self._length))

    def _take(self, end: int) -> str:
        """What is held back up to a character of the output."""
        count = max(0, end - self.settled)
        taken, self._held = self._held[:count], self._held[count:]
        return taken

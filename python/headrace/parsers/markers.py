"""Finds markers in text that comes in pieces, and holds back what may become one."""

from __future__ import annotations

import re

from headrace.quoting import quoted


class Markers:
    """Some strings, none of which is the beginning of another. Immutable, shareable."""

    __slots__ = ("_longest", "_regex", "_strings")

    def __init__(self, *strings: str) -> None:
        """Raises ValueError for an empty string, or one that begins another."""
        for string in strings:
            others = [other for other in strings if other != string]
            if not string or any(other.startswith(string) for other in others):
                raise ValueError(
                    f"a marker must not be empty or begin another one: {quoted(string)}"
                )
        self._strings = strings
        self._longest = max(map(len, strings), default=0)
        self._regex = re.compile("|".join(map(re.escape, strings)))

    def split(self, text: str) -> tuple[str, str | None, str]:
        """What comes before the first marker, the marker, and the rest.

        Without a marker: the text that is none whatever follows, None, and what may become one.
        """
        found = self._regex.search(text) if self._strings else None
        if found is not None:
            return text[: found.start()], found.group(), text[found.end() :]
        cut = len(text) - self._held(text)
        return text[:cut], None, text[cut:]

    def _held(self, text: str) -> int:
        """How many of the last characters begin a marker."""
        for size in range(min(len(text), self._longest - 1), 0, -1):
            tail = text[-size:]
            if any(string.startswith(tail) for string in self._strings):
                return size
        return 0


class NewlineTrim:
    """Leaves out the newlines at the two ends of a text that comes in pieces."""

    __slots__ = ("_held", "_leading", "_trailing")

    def __init__(self, *, leading: bool = True, trailing: bool = True) -> None:
        self._leading = leading
        self._trailing = trailing
        self._held = ""

    @property
    def held(self) -> int:
        return len(self._held)

    def push(self, text: str) -> str:
        """The text that is known to stay."""
        if self._leading:
            text = text.lstrip("\n")
            self._leading = not text
        if not self._trailing:
            return text
        text = self._held + text
        kept = text.rstrip("\n")
        self._held = text[len(kept) :]
        return kept

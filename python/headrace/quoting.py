"""Values of callers and of files, as error messages show them."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any

MAX_CHARS = 200


def quoted(value: Any) -> str:
    """repr(value), cut to at most MAX_CHARS characters, without making a longer one first."""
    if isinstance(value, (str, bytes, bytearray)):
        return shortened(repr(value[: MAX_CHARS + 1]))
    return shortened(_Short().repr(value))


def shortened(text: str, limit: int = MAX_CHARS) -> str:
    """At most `limit` characters of a text; a cut one ends in "..."."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, if one is near."""
    near = difflib.get_close_matches(name[:MAX_CHARS], known, n=1, cutoff=0.75)
    return f"; did you mean {near[0]!r}?" if near else ""


class _Short(reprlib.Repr):
    """Looks at no more elements and characters than a message can show."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 20
        self.maxstring = self.maxother = MAX_CHARS
        self.maxlong = 100

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write numbers of thousands of digits.
        if x.bit_length() > 600:
            return f"<an int of {x.bit_length()} bits>"
        return super().repr_int(x, level)


def checked_text(text: str, name: str) -> str:
    """`text`, if the engine can take it. Raises TypeError and ValueError that begin with `name`."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, got {quoted(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} has a lone surrogate, {quoted(text)}: UTF-8 has none") from None
    if "\0" in text:
        raise ValueError(f"{name} has a NUL character, {quoted(text)}: leave it out")
    return text

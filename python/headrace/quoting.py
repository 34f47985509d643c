"""Values of callers and of files, as error messages show them."""

from __future__ import annotations

import reprlib
from typing import Any

MAX_CHARS = 200


def quoted(value: Any) -> str:
    """repr(value), cut to at most MAX_CHARS characters, without making a longer one first."""
    if isinstance(value, (str, bytes, bytearray)):
        return shortened(repr(value[: MAX_CHARS + 1]))
    try:
        return shortened(_Short().repr(value))
    except Exception as error:  # a repr of the caller's own
        return f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"


def shortened(text: str, limit: int = MAX_CHARS) -> str:
    """At most `limit` characters of a text; a cut one ends in "..."."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


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

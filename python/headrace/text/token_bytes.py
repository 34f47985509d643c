"""The bytes that tokens add to a text, for grammars."""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = b"\xff"  # in no UTF-8


@dataclass(slots=True)
class TokenBytes:
    """What the ids of a vocabulary add to the text of an output.

    The bytes of an output's tokens, joined, are its text in UTF-8, the first one's taken from
    `first` if it is there.
    """

    tokens: list[bytes]  # by id; b"": none
    # Where they differ at the start. b"": nothing, and what follows is not at the start; NEVER: it
    # can't be told for this token alone, so that a grammar must not begin with it.
    first: dict[int, bytes] = field(default_factory=dict)
    special: dict[int, str] = field(default_factory=dict)  # control tokens, by name: never text
    special_restarts: bool = False  # `first` holds after a special token, too

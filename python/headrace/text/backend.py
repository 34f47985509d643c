"""What a tokenizer file format has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.text.detokenizer import Detokenizer
from headrace.text.token_bytes import TokenBytes


class Backend(Protocol):
    """Encodes and decodes by one kind of tokenizer file. Thread safe."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str: ...

    def detokenizer(
        self,
        skip_special_tokens: bool,
        shown: frozenset[str] = frozenset(),
        after: Sequence[int] = (),
    ) -> Detokenizer:
        """A fresh detokenizer for one output.

        shown: special tokens that stay in its text. after: the ids that it goes on from.
        """
        ...

    def token_text(self, token_id: int) -> str:
        """The text of one token in the middle of an output; special ones as they are written."""
        ...

    def part_bytes(self, token_id: int) -> bytes | None:
        """The bytes of a token that may be a part of a character; None if its text is all."""
        ...

    def token_of(self, token_id: int) -> str | None:
        """The vocabulary's spelling, None for an unknown id."""
        ...

    def id_of(self, token: str) -> int | None:
        """The id of a vocabulary spelling, None for an unknown token."""
        ...

    def size(self) -> int:
        """Number of ids, added tokens included."""
        ...

    def token_bytes(self) -> TokenBytes:
        """Raises UnsupportedError if texts aren't made token by token."""
        ...

    def longest_token(self) -> int:
        """Bytes of the longest spelling: no text of more than so many per token fits a prompt."""
        ...

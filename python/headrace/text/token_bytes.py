"""The bytes that tokens add to a text, for grammars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import UnsupportedError
from headrace.text.decoders import (
    BYTE_OF_CHAR,
    ByteFallback,
    ByteLevel,
    Chain,
    LastToken,
    NotStreamable,
    build_stages,
    byte_of,
)

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


def chain_token_bytes(
    decoder: dict[str, Any] | None, vocabulary: Iterable[tuple[int, str]], special: dict[int, str]
) -> TokenBytes:
    """For a vocabulary decoded by the `decoder` of a tokenizer.json.

    Raises UnsupportedError if the decoder's text isn't made token by token.
    """
    spell = _speller(decoder)
    items = list(vocabulary)
    out = TokenBytes([b""] * (1 + max((i for i, _ in items), default=0)), special=special)
    for token_id, token in items:
        if token_id not in special:
            first, later = spell.first(token), spell.later(token)
            out.tokens[token_id] = later
            if first != later:
                out.first[token_id] = first if first or spell.ends_start(token) else NEVER
    return out


def part_bytes(decoder: dict[str, Any] | None, token: str) -> bytes | None:
    """The bytes of a token that may be a part of a character; None if its text is all there is."""
    stages = build_stages(decoder)
    if any(isinstance(stage, ByteLevel) for stage in stages):
        return _ByteLevelSpeller().later(token)
    byte = byte_of(token) if any(isinstance(stage, ByteFallback) for stage in stages) else None
    return None if byte is None else bytes([byte])


def _speller(decoder: dict[str, Any] | None) -> _ByteLevelSpeller | _ChainSpeller:
    try:
        stages = build_stages(decoder)
    except NotStreamable as error:
        raise UnsupportedError(_NOT_BY_TOKEN) from error
    if len(stages) == 1 and isinstance(stages[0], ByteLevel):
        return _ByteLevelSpeller()
    if any(isinstance(stage, (ByteLevel, LastToken)) for stage in stages):
        raise UnsupportedError(_NOT_BY_TOKEN)
    return _ChainSpeller(decoder, any(isinstance(stage, ByteFallback) for stage in stages))


_NOT_BY_TOKEN = (
    "guided decoding: this tokenizer's text isn't made token by token; use a model whose "
    "tokenizer is byte-level or sentencepiece"
)


class _ByteLevelSpeller:
    def later(self, token: str) -> bytes:
        try:
            return bytes(map(BYTE_OF_CHAR.__getitem__, token))
        except KeyError:  # as in ByteLevel
            return token.encode("utf-8", "replace")

    first = later

    def ends_start(self, token: str) -> bool:
        return True


class _ChainSpeller:
    def __init__(self, decoder: dict[str, Any] | None, has_bytes: bool) -> None:
        self._decoder = decoder
        self._has_bytes = has_bytes

    def first(self, token: str) -> bytes:
        return self._text(Chain(build_stages(self._decoder)), token)

    def later(self, token: str) -> bytes:
        chain = Chain(build_stages(self._decoder))
        chain.push("a")
        return self._text(chain, token)

    def ends_start(self, token: str) -> bool:
        """Whether the same token in second place is like any other that isn't first."""
        chain = Chain(build_stages(self._decoder))
        chain.push(token)
        return self._text(chain, token) == self.later(token)

    def _text(self, chain: Chain, token: str) -> bytes:
        byte = byte_of(token) if self._has_bytes else None
        if byte is not None and byte >= 0x80:
            return bytes([byte])
        return (chain.push(token) + chain.finish()).encode("utf-8", "replace")

"""Incremental detokenization: ids in, settled text out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.text.decoders import Chain


class Detokenizer(Protocol):
    """Turns the ids of one output into text, id by id.

    The texts of all `push` calls and of `finish`, joined, are the tokenizer's `decode` of all ids.
    """

    def push(self, token_id: int) -> str:
        """The text that this id settles; "" while later ids could still change it."""
        ...

    def finish(self) -> str:
        """The text still held back, after the last id."""
        ...

    @property
    def holding(self) -> bool:
        """Whether an id pushed so far has text that hasn't been returned yet."""
        ...


class ChainDetokenizer:
    """Looks token strings up and sends them through a decoder chain."""

    __slots__ = ("_chain", "_token_of")

    def __init__(self, token_of: Callable[[int], str | None], chain: Chain) -> None:
        self._token_of = token_of
        self._chain = chain

    def push(self, token_id: int) -> str:
        token = self._token_of(token_id)
        return "" if token is None else self._chain.push(token)

    def finish(self) -> str:
        return self._chain.finish()

    @property
    def holding(self) -> bool:
        return self._chain.holding


class WholeTextDetokenizer:
    """For decoders whose text is only known at the end: all of it comes from `finish`."""

    __slots__ = ("_decode", "_ids")

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        return ""

    def finish(self) -> str:
        return self._decode(self._ids)

    @property
    def holding(self) -> bool:
        return bool(self._ids)


class NullDetokenizer:
    """For models without a tokenizer: outputs have ids and no text."""

    __slots__ = ()

    def push(self, token_id: int) -> str:
        return ""

    def finish(self) -> str:
        return ""

    @property
    def holding(self) -> bool:
        return False

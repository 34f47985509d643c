"""Incremental detokenization: ids in, settled text out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.text.decoders import Chain


class Detokenizer(Protocol):
    """Turns the ids of one output into text, id by id.

    The texts of all `push` calls and of `finish`, joined, are the tokenizer's `decode` of all ids.
    Of an output that goes on from a prompt, they are what it adds to the prompt's text.
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

    __slots__ = ("_chain", "_earlier", "_token_of")

    def __init__(
        self,
        token_of: Callable[[int], str | None],
        chains: Callable[[], Chain],
        before: str | None = None,
    ) -> None:
        """`chains` makes fresh ones. before: the token that the output follows; None: it begins a
        text."""
        self._token_of = token_of
        self._chain = chains()
        self._earlier = ""  # held text of `before`, which is no part of the output
        if before is not None:
            settled = self._chain.push(before)
            alone = chains()
            self._earlier = (alone.push(before) + alone.finish())[len(settled) :]

    def push(self, token_id: int) -> str:
        token = self._token_of(token_id)
        return "" if token is None else self._own(self._chain.push(token))

    def finish(self) -> str:
        return self._own(self._chain.finish())

    def _own(self, text: str) -> str:
        if self._earlier and text:
            text, self._earlier = text.removeprefix(self._earlier), ""
        return text

    @property
    def holding(self) -> bool:
        return self._chain.holding


class WholeTextDetokenizer:
    """For decoders whose text is only known at the end: all of it comes from `finish`."""

    __slots__ = ("_before", "_decode", "_ids")

    def __init__(self, decode: Callable[[list[int]], str], before: list[int]) -> None:
        """before: ids that the output follows, if it doesn't begin a text."""
        self._decode = decode
        self._before = before
        self._ids: list[int] = []

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        return ""

    def finish(self) -> str:
        if not self._before:
            return self._decode(self._ids)
        whole = self._decode([*self._before, *self._ids])
        return whole.removeprefix(self._decode(self._before))

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

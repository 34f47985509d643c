"""Streaming forms of the decoders of a tokenizer.json.

A chain of stages turns the token strings of an output into text piece by piece. The pieces of a
whole output, joined, are exactly what `tokenizers` decodes from all its ids at once. Text is held
back only while later tokens can still change it: a UTF-8 character cut by a token border, or a run
of byte-fallback tokens, whose text isn't settled before the run ends.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol


class Stage(Protocol):
    """One step of the chain; strings in, strings out, in order."""

    def push(self, token: str) -> Iterable[str]: ...

    def flush(self) -> Iterable[str]:
        """What is still held at the end of the output."""
        ...

    @property
    def holding(self) -> bool:
        """Whether a token pushed so far has text that hasn't been returned yet."""
        ...


def _byte_level_alphabet() -> dict[str, int]:
    """The characters that stand for the 256 bytes in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHAR = _byte_level_alphabet()
_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class ByteLevel:
    """Bytes written as characters, joined and decoded as UTF-8."""

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = _utf8_decoder("replace")

    def push(self, token: str) -> Iterable[str]:
        try:
            data = bytes(map(BYTE_OF_CHAR.__getitem__, token))
        except KeyError:  # a token that isn't written in the alphabet stands for itself
            data = token.encode("utf-8", "replace")
        return (self._decoder.decode(data),)

    def flush(self) -> Iterable[str]:
        return (self._decoder.decode(b"", final=True),)

    @property
    def holding(self) -> bool:
        return self._decoder.getstate()[0] != b""


class ByteFallback:
    """Runs of `<0xNN>` tokens as UTF-8; a run that isn't valid gives one U+FFFD per byte."""

    __slots__ = ("_run",)

    def __init__(self) -> None:
        self._run = bytearray()

    def push(self, token: str) -> Iterable[str]:
        byte = byte_of(token)
        if byte is not None:
            self._run.append(byte)
            return ()
        if not self._run:
            return (token,)
        return (*self.flush(), token)

    def flush(self) -> Iterable[str]:
        run, self._run = bytes(self._run), bytearray()
        if not run:
            return ()
        try:
            return (run.decode("utf-8"),)
        except UnicodeDecodeError:
            return ("\ufffd",) * len(run)

    @property
    def holding(self) -> bool:
        return bool(self._run)


def byte_of(token: str) -> int | None:
    """The byte that a `<0xNN>` token stands for, None for any other token."""
    if len(token) != 6 or not token.startswith("<0x") or token[5] != ">":
        return None
    digits = token[3:5]
    # Two hexadecimal digits, or a plus sign and one, as Rust's integer parser takes them.
    if digits[0] == "+":
        digits = digits[1:]
    return int(digits, 16) if all(c in "0123456789abcdefABCDEF" for c in digits) else None


class _HoldsNothing:
    """What stages share that return the text of a token at once."""

    __slots__ = ()
    holding = False

    def flush(self) -> Iterable[str]:
        return ()


class PerToken(_HoldsNothing):
    """A function of each token alone."""

    __slots__ = ("_apply",)

    def __init__(self, apply: Callable[[str], str]) -> None:
        self._apply = apply

    def push(self, token: str) -> Iterable[str]:
        return (self._apply(token),)


class FirstToken(_HoldsNothing):
    """One function for the first token and another for the rest."""

    __slots__ = ("_first", "_rest", "_seen")

    def __init__(self, first: Callable[[str], str], rest: Callable[[str], str]) -> None:
        self._first, self._rest = first, rest
        self._seen = False

    def push(self, token: str) -> Iterable[str]:
        if self._seen:
            return (self._rest(token),)
        self._seen = True
        return (self._first(token),)


class LastToken:
    """One function for the last token and another for those before it; holds one token."""

    __slots__ = ("_held", "_last", "_others")

    def __init__(self, others: Callable[[str], str], last: Callable[[str], str]) -> None:
        self._others, self._last = others, last
        self._held: str | None = None

    def push(self, token: str) -> Iterable[str]:
        held, self._held = self._held, token
        return () if held is None else (self._others(held),)

    def flush(self) -> Iterable[str]:
        held, self._held = self._held, None
        return () if held is None else (self._last(held),)

    @property
    def holding(self) -> bool:
        return self._held is not None


class StripStart(_HoldsNothing):
    """Drops up to `count` leading `char`s of the whole text."""

    __slots__ = ("_char", "_left")

    def __init__(self, char: str, count: int) -> None:
        self._char, self._left = char, count

    def push(self, token: str) -> Iterable[str]:
        while self._left and token:
            if token[0] != self._char:
                self._left = 0
                break
            token = token[1:]
            self._left -= 1
        return (token,)


def strip_token(token: str, char: str, start: int, stop: int) -> str:
    """Drops up to `start` leading and `stop` trailing `char`s."""
    low = 0
    while low < min(start, len(token)) and token[low] == char:
        low += 1
    high = len(token)
    while len(token) - high < stop and high > low and token[high - 1] == char:
        high -= 1
    return token[low:high]


_CLEANUPS = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def _cleaned(text: str) -> str:
    for old, new in _CLEANUPS:
        text = text.replace(old, new)
    return text


class NotStreamable(Exception):
    """The chain has no streaming form here."""


def build_stages(decoder: dict[str, Any] | None) -> list[Stage]:
    """Fresh stages for the `decoder` of a tokenizer.json.

    Raises NotStreamable for a decoder whose text can only be known at the end.
    """
    if decoder is None:
        return [FirstToken(lambda token: token, lambda token: " " + token)]
    stages: list[Stage] = []
    fused = False  # everything before arrives as one token: per-token decoders see the whole text
    for spec in _flat(decoder):
        kind = spec.get("type")
        if kind == "Fuse":
            fused = True
        elif fused:
            stages.append(_whole_text_stage(spec))
        elif kind == "ByteLevel":
            stages.append(ByteLevel())
            fused = True
        else:
            stages.append(_token_stage(spec))
    return stages


def _flat(decoder: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if decoder.get("type") != "Sequence":
        yield decoder
        return
    for inner in decoder.get("decoders", ()):
        yield from _flat(inner)


def _whole_text_stage(spec: dict[str, Any]) -> Stage:
    kind = spec.get("type")
    if kind == "Strip" and not spec["stop"]:
        return StripStart(spec["content"], spec["start"])
    if kind == "Replace" and len(spec["pattern"].get("String", "")) == 1:
        return PerToken(_replacer(spec))
    raise NotStreamable(str(kind))


def _token_stage(spec: dict[str, Any]) -> Stage:
    kind = spec.get("type")
    if kind == "ByteFallback":
        return ByteFallback()
    if kind == "Replace" and spec["pattern"].get("String"):
        return PerToken(_replacer(spec))
    if kind == "Strip":
        content, start, stop = spec["content"], spec["start"], spec["stop"]
        return PerToken(lambda token: strip_token(token, content, start, stop))
    if kind == "Metaspace":
        mark = spec["replacement"]
        rest = PerToken(lambda token: token.replace(mark, " "))
        if spec.get("prepend_scheme", "always") == "never":
            return rest
        return FirstToken(lambda t: t.replace(mark, ""), lambda t: t.replace(mark, " "))
    if kind == "WordPiece":
        return _word_piece(spec["prefix"], bool(spec["cleanup"]))
    if kind == "BPEDecoder":
        suffix = spec["suffix"]
        return LastToken(lambda t: t.replace(suffix, " "), lambda t: t.replace(suffix, ""))
    raise NotStreamable(str(kind))


def _replacer(spec: dict[str, Any]) -> Callable[[str], str]:
    pattern, content = spec["pattern"]["String"], spec["content"]
    return lambda token: token.replace(pattern, content)


def _word_piece(prefix: str, cleanup: bool) -> Stage:
    finish = _cleaned if cleanup else str

    def rest(token: str) -> str:
        joined = token[len(prefix) :] if token.startswith(prefix) else " " + token
        return finish(joined)

    return FirstToken(finish, rest)


class Chain:
    """The stages in a row. One chain serves one output."""

    __slots__ = ("_stages",)

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def push(self, token: str) -> str:
        """The text that `token` settles."""
        texts: Iterable[str] = (token,)
        for stage in self._stages:
            texts = [text for item in texts for text in stage.push(item)]
        return "".join(texts)

    def finish(self) -> str:
        """The text that was still held. The chain is used up."""
        texts: list[str] = []
        for stage in self._stages:
            texts = [text for item in texts for text in stage.push(item)]
            texts.extend(stage.flush())
        return "".join(texts)

    @property
    def holding(self) -> bool:
        """Whether a token pushed so far has text that hasn't been returned yet."""
        return any(stage.holding for stage in self._stages)

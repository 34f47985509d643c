"""The bytes of an output's tokens, joined, are its text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as RawTokenizer

from headrace.errors import UnsupportedError
from headrace.text.token_bytes import NEVER, TokenBytes
from headrace.text.tokenizer import Tokenizer


def saved(raw: RawTokenizer) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        raw.save(str(Path(folder, "tokenizer.json")))
        model_folders.write_json(Path(folder, "tokenizer_config.json"), {})
        return Tokenizer.from_pretrained(folder)


def sentencepiece(**options: Any) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = model_folders.sentencepiece_folder(Path(folder), **options)
        return Tokenizer.from_pretrained(path)


def with_decoder(decoder: Any) -> Tokenizer:
    tokens = ["a", "b", "▁a", "▁", "▁▁b", " c", "c ", "##d", ".", "n't", "é"]
    tokens += [f"<0x{byte:02X}>" for byte in (0xE4, 0xBD, 0xA0, 0x41, 0x20, 0xFF)]
    raw = RawTokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    raw.decoder = decoder
    raw.add_tokens(["<added é>"])
    raw.add_special_tokens([AddedToken("<special>", special=True)])
    return saved(raw)


LLAMA = [
    decoders.Replace("▁", " "),
    decoders.ByteFallback(),
    decoders.Fuse(),
    decoders.Strip(" ", 1, 0),
]
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": lambda: saved(model_folders.byte_level()),
    "byte fallback": lambda: saved(model_folders.byte_fallback()),
    "sentencepiece": sentencepiece,
    "sentencepiece, no dummy prefix": lambda: sentencepiece(add_dummy_prefix=False),
    "sentencepiece, every space": lambda: sentencepiece(remove_extra_whitespaces=False),
    "llama chain": lambda: with_decoder(decoders.Sequence(LLAMA)),
    "two spaces": lambda: with_decoder(decoders.Sequence([*LLAMA[:3], decoders.Strip(" ", 2, 0)])),
    "metaspace": lambda: with_decoder(decoders.Metaspace()),
    "metaspace, never": lambda: with_decoder(decoders.Metaspace(prepend_scheme="never")),
    "byte level chain": lambda: with_decoder(decoders.ByteLevel()),
    "word piece": lambda: with_decoder(decoders.WordPiece()),
    "no decoder": lambda: with_decoder(None),
}


def joined(table: TokenBytes, ids: list[int]) -> bytes:
    first = table.first.get(ids[0], table.tokens[ids[0]]) if ids else b""
    return first + b"".join(table.tokens[i] for i in ids[1:])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_bytes_are_the_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    table = tokenizer.token_bytes()
    usable = [i for i, data in enumerate(table.tokens) if data and i not in table.special]
    beginnings = [i for i in usable if table.first.get(i) != NEVER]
    checked = 0

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(st.sampled_from(beginnings), st.lists(st.sampled_from(usable), max_size=12))
    def check(start: int, rest: list[int]) -> None:
        nonlocal checked
        ids = [start, *rest]
        try:
            text = joined(table, ids).decode("utf-8")
        except UnicodeDecodeError:
            return  # no grammar allows it
        checked += 1
        for skip_special in (False, True):
            assert tokenizer.decode(ids, skip_special) == text

    check()
    assert checked > 20


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_survive(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    table = tokenizer.token_bytes()
    for text in ("a b", "b a", '{"a": [1, 2]}', "你好 é"):
        ids = tokenizer.encode(text)
        known = ids and table.first.get(ids[0]) != NEVER and not set(ids) & set(table.special)
        if known and tokenizer.decode(ids) == text:
            assert joined(table, ids).decode() == text


def test_special_tokens_are_no_text() -> None:
    table = with_decoder(decoders.Sequence(LLAMA)).token_bytes()
    (special,) = [i for i, name in table.special.items() if name == "<special>"]
    assert table.tokens[special] == b""
    assert "<added é>".encode() in table.tokens
    assert sentencepiece().token_bytes().special_restarts


def test_other_tokenizers_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="token by token"):
        with_decoder(decoders.BPEDecoder()).token_bytes()

"""Ids of folders that hold a vocabulary file alone are those of the package that made it."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pipelines
import pytest
import ranked
import sentencepiece
import text_cases

from headrace import _core

FEW = 150
USER = ["<tool>", "aaa", "▁▁", "你好", "the and"]
MODELS: dict[str, dict[str, Any]] = {
    "bpe": {
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
    "bpe_user": {"model_type": "bpe", "user_defined_symbols": USER},
    "bpe_suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True},
    "unigram": {"model_type": "unigram", "byte_fallback": True},
    "unigram_user": {
        "model_type": "unigram",
        "user_defined_symbols": USER,
        "add_dummy_prefix": False,
        "normalization_rule_name": "nfkc",
    },
}
LLAMA = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": {"content": "</s>"},
    "added_tokens_decoder": {"2000": {"content": "<|x|>", "special": True}},
}


# Two of three pieces have the score of another one, every seventh piece is unused: the package's
# rules by scores, which no list of merges can stand for.
EDITED = {"bpe_equal_scores": False, "bpe_unused": True}


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Of a message of pieces and messages: the number of each field, and its bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        assert tag & 7 == 2
        size = varint()
        yield tag >> 3, message[at : at + size]
        at += size


def edited(model: bytes, unused: bool) -> bytes:
    def length(size: int) -> bytes:
        return bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])

    made = b""
    number = 0
    for field, body in fields(model):
        if field == 1:
            number += 1
            if number > 300:  # behind the bytes: of two fields for one value the last counts
                body += b"\x15" + struct.pack("<f", -(number // 3))
            if number > 300 and number % 7 == 0 and unused:
                body += b"\x18\x05"
        made += bytes([field << 3 | 2]) + length(len(body)) + body
    return made


def train(folder: Path, options: dict[str, Any]) -> bytes:
    model = io.BytesIO()
    lines = [line[:500] for line in pipelines.corpus().splitlines() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=900,
        num_threads=1,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return model.getvalue()


@pytest.mark.parametrize("name", MODELS)
def test_sentencepiece(tmp_path: Path, name: str) -> None:
    package = sentencepiece.SentencePieceProcessor(model_proto=train(tmp_path, MODELS[name]))
    own = _core.TextTokenizer(os.fspath(tmp_path))
    for text in text_cases.texts(len(name), FEW, pipelines.corpus(), [*USER, "<s>", "    "]):
        ids = package.encode(text)
        assert own.encode(text) == ids, text
        assert own.encode_with_offsets(text)[0] == ids, text


@pytest.mark.parametrize("name", EDITED)
def test_sentencepiece_by_scores(tmp_path: Path, name: str) -> None:
    model = edited(train(tmp_path, MODELS["bpe"]), EDITED[name])
    (tmp_path / "tokenizer.model").write_bytes(model)
    package = sentencepiece.SentencePieceProcessor(model_proto=model)
    own = _core.TextTokenizer(os.fspath(tmp_path))
    for text in text_cases.texts(len(name), FEW, pipelines.corpus(), ["<s>", "    ", "the the"]):
        for part in (text, text * 3):  # words that were seen, and longer ones
            ids = package.encode(part)
            assert own.encode(part) == ids, part
            assert own.encode_with_offsets(part)[0] == ids, part


ADDED = {"<s>": 1, "</s>": 2, "<|x|>": 2000}


def test_added_tokens_cut_texts_into_stretches_of_sentencepiece(tmp_path: Path) -> None:
    package = sentencepiece.SentencePieceProcessor(model_proto=train(tmp_path, MODELS["bpe"]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    own = _core.TextTokenizer(os.fspath(tmp_path))
    for text in text_cases.texts(1, FEW, pipelines.corpus(), list(ADDED)):
        parts = [
            [ADDED[part]] if part in ADDED else package.encode(part)
            for part in re.split("(<s>|</s>|<[|]x[|]>)", text)
        ]
        ids = [token_id for part in parts for token_id in part]
        assert own.encode(text) == ids, text
        assert own.encode(text, True) == [1, *ids], text
        names = {token_id: name for name, token_id in ADDED.items()}
        decoded = [names.get(part[0]) or package.decode(part) for part in parts if part]
        assert own.decode(ids) == "".join(decoded), text


def test_a_new_stretch_without_legacy_has_no_space_in_front(tmp_path: Path) -> None:
    train(tmp_path, MODELS["bpe"])
    config = json.dumps({**LLAMA, "legacy": False})
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    own = _core.TextTokenizer(os.fspath(tmp_path))
    ids = own.encode("the<s>the <s> the", True)
    assert "".join(own.spelling(i) for i in ids) == "<s>▁the<s>the▁<s>▁the"


PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_tokens() -> list[bytes]:
    """In order of rank."""
    spec = pipelines.specs()["llama3"]
    alphabet = {c: b for b, c in ranked.alphabet().items()}
    return [bytes(alphabet[c] for c in token) for token in spec["model"]["vocab"]]


def test_tekken(tmp_path: Path) -> None:
    tokens = byte_tokens()
    package = ranked.package(dict(enumerate(tokens)), PATTERN)
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    config = {
        "pattern": PATTERN,
        "default_vocab_size": len(tokens) + 30,
        "default_num_special_tokens": 30,
    }
    (tmp_path / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocab}))
    own = _core.TextTokenizer(os.fspath(tmp_path))
    for text in text_cases.texts(2, FEW, pipelines.corpus()):
        plain = text.replace("<unk>", "")
        ids = [rank + 30 for rank in package.encode(plain).ids]
        assert own.encode(plain) == ids, plain
        assert own.decode(ids) == plain
    ids = own.encode("<s>a<SPECIAL_29>")
    assert ids[::2] == [1, 29]
    assert own.decode(ids) == "<s>a<SPECIAL_29>"
    assert own.decode(ids, skip_special_tokens=True) == "a"


def test_a_tiktoken_file_alone_must_be_one_that_is_known(tmp_path: Path) -> None:
    tokens = byte_tokens()
    lines = (f"{base64.b64encode(t).decode()} {rank}\n" for rank, t in enumerate(tokens))
    (tmp_path / "tokenizer.model").write_text("".join(lines))
    with pytest.raises(_core.HeadraceError, match=f"a tiktoken file of {len(tokens)} tokens"):
        _core.TextTokenizer(os.fspath(tmp_path))

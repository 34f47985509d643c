"""Incremental detokenization is exact: increments, joined, are the tokenizer's own decode."""

from __future__ import annotations

import functools
import itertools
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as RawTokenizer

from headrace.errors import TokenizerError
from headrace.text.tokenizer import Tokenizer

TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="你好世界天气很龍🙂👩\u200d👧🇫é \n", max_size=30),
    st.binary(max_size=20).map(lambda data: data.decode("utf-8", "replace")),
)


def saved(raw: RawTokenizer, **config: Any) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        raw.save(str(Path(folder, "tokenizer.json")))
        model_folders.write_json(Path(folder, "tokenizer_config.json"), config)
        return Tokenizer.from_pretrained(folder)


def with_decoder(decoder: Any) -> RawTokenizer:
    """Tokens that exercise every decoder: marks, byte tokens, spaces, pieces of words."""
    tokens = [
        "a",
        "b",
        "▁a",
        "▁",
        "▁▁b",
        " c",
        "c ",
        "##d",
        "e</w>",
        "f</w>g",
        ".",
        "n't",
        "do not",
    ]
    tokens += [f"<0x{byte:02X}>" for byte in (0xE4, 0xBD, 0xA0, 0x41, 0xFF)] + ["<0x4g>", "<0x+4>"]
    raw = RawTokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    raw.decoder = decoder
    raw.add_tokens(["<added é>"])
    raw.add_special_tokens([AddedToken("<special>", special=True)])
    return raw


DECODERS: dict[str, Callable[[], Any]] = {
    "byte_level": decoders.ByteLevel,
    "byte_fallback": decoders.ByteFallback,
    "llama": lambda: decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    ),
    "gemma": lambda: decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    ),
    "fused_replace": lambda: decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", " ")]),
    "metaspace": decoders.Metaspace,
    "metaspace_never": lambda: decoders.Metaspace(prepend_scheme="never"),
    "word_piece": decoders.WordPiece,
    "word_piece_raw": lambda: decoders.WordPiece(cleanup=False),
    "bytes_then_words": lambda: decoders.Sequence([decoders.ByteFallback(), decoders.WordPiece()]),
    "bpe": decoders.BPEDecoder,
    "strip": lambda: decoders.Strip(" ", 1, 1),
    "none": lambda: None,
}


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    if kind == "trained_byte_level":
        return saved(model_folders.byte_level())
    if kind == "trained_byte_fallback":
        return saved(model_folders.byte_fallback())
    if kind.startswith("sentencepiece"):
        with tempfile.TemporaryDirectory() as folder:
            plain = kind.endswith("plain")
            options = (
                {} if plain else {"add_dummy_prefix": False, "remove_extra_whitespaces": False}
            )
            model_folders.sentencepiece_folder(
                Path(folder),
                {"added_tokens_decoder": {"500": {"content": "<add ed>"}}},
                **options,
            )
            return Tokenizer.from_pretrained(folder)
    return saved(with_decoder(DECODERS[kind]()))


KINDS = [
    "trained_byte_level",
    "trained_byte_fallback",
    "sentencepiece_plain",
    "sentencepiece_exact",
    *DECODERS,
]


def streamed(own: Tokenizer, ids: list[int], skip: bool) -> str:
    detokenizer = own.detokenizer(skip)
    parts = []
    for token_id in ids:
        parts.append(detokenizer.push(token_id))
        if not detokenizer.holding:  # then nothing before this token can still change
            assert "".join(parts) == own.decode(ids[: len(parts)], skip)
    return "".join(parts) + detokenizer.finish()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_random_ids(kind: str, data: st.DataObject, skip: bool) -> None:
    own = tokenizer(kind)
    ids = data.draw(st.lists(st.integers(0, len(own) + 3), max_size=30))
    assert streamed(own, ids, skip) == own.decode(ids, skip)


@pytest.mark.parametrize("kind", KINDS[:4])
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_texts(kind: str, text: str) -> None:
    own = tokenizer(kind)
    ids = own.encode(text)
    assert streamed(own, ids, False) == own.decode(ids)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_byte_level_gives_every_text_back(text: str) -> None:
    own = tokenizer("trained_byte_level")
    assert streamed(own, own.encode(text), False) == text


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_sentencepiece_decodes_like_sentencepiece(data: st.DataObject) -> None:
    for options in ({}, {"add_dummy_prefix": False}, {"remove_extra_whitespaces": False}):
        model, own = _sentencepiece_pair(json.dumps(options))
        ids = data.draw(st.lists(st.integers(3, model.vocab_size() - 1), max_size=12))
        assert streamed(own, ids, False) == model.decode(ids)


@pytest.mark.parametrize("options", ["{}", '{"remove_extra_whitespaces": false}'])
def test_leading_spaces_like_sentencepiece(options: str) -> None:
    model, own = _sentencepiece_pair(options)
    space = model.piece_to_id("\u2581")
    word = next(i for i in range(300, model.vocab_size()) if model.id_to_piece(i)[0] == "\u2581")
    byte = model.piece_to_id("<0x41>")
    for ids in itertools.product([space, word, byte], repeat=4):
        assert streamed(own, list(ids), False) == model.decode(list(ids))


@functools.cache
def _sentencepiece_pair(options: str) -> tuple[Any, Tokenizer]:
    with tempfile.TemporaryDirectory() as folder:
        model_folders.sentencepiece_folder(Path(folder), **json.loads(options))
        model = sentencepiece.SentencePieceProcessor(
            model_proto=Path(folder, "tokenizer.model").read_bytes()
        )
        return model, Tokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    "kind", ["trained_byte_level", "trained_byte_fallback", "sentencepiece_plain"]
)
@pytest.mark.parametrize("text", ["你", "🙂", "é"])
def test_a_character_is_held_only_until_it_is_whole(kind: str, text: str) -> None:
    own = tokenizer(kind)
    ids = own.encode(text + "a")
    detokenizer = own.detokenizer()
    increments = [detokenizer.push(token_id) for token_id in ids]
    assert "\ufffd" not in "".join(increments)
    # Whole before the last token; a byte-fallback run ends with the token after it.
    settled = increments if kind == "trained_byte_fallback" else increments[:-1]
    assert text in "".join(settled)


@pytest.mark.parametrize("kind", KINDS[:4])
def test_a_cut_character_shows_at_the_end(kind: str) -> None:
    own = tokenizer(kind)
    ids = own.encode("a🙂")[:-1]
    assert streamed(own, ids, False).endswith("\ufffd")


def test_special_tokens_can_be_shown_or_skipped() -> None:
    own = tokenizer("trained_byte_level")
    ids = own.encode("<s>hello</s>")
    assert streamed(own, ids, True) == "hello"
    assert streamed(own, ids, False) == "<s>hello</s>"


@pytest.mark.parametrize("kind", KINDS[:4])
def test_token_text_keeps_its_space(kind: str) -> None:
    own = tokenizer(kind)
    ids = own.encode("the quick fox")
    assert "".join(own.token_text(token_id) for token_id in ids).strip() == "the quick fox"
    assert own.token_text(10**6) == ""


def test_where_the_package_panics_no_ids_are_no_text() -> None:
    own = saved(with_decoder(decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 9)])))
    assert own.decode([]) == ""


def test_a_decoder_of_speech_is_refused() -> None:
    with pytest.raises(TokenizerError, match="the decoder CTC isn't supported"):
        saved(with_decoder(decoders.CTC()))


# Decoders that join the first token to what comes before, in one way or another.
@pytest.mark.parametrize(
    "kind",
    [
        "trained_byte_level",
        "trained_byte_fallback",
        "sentencepiece_plain",
        "sentencepiece_exact",
        "llama",
        "metaspace",
        "word_piece_raw",
        "none",
    ],
)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_an_output_goes_on_from_its_prompt(kind: str, data: st.DataObject, skip: bool) -> None:
    own = tokenizer(kind)
    whole = [i for i in range(len(own)) if "\ufffd" not in own.token_text(i)]
    words = [i for i in whole if not re.fullmatch("<0x..>", str(own.convert_ids_to_tokens(i)))]
    lists = st.lists(st.sampled_from(words), min_size=1, max_size=8)
    prompt, ids = data.draw(lists), data.draw(lists)
    detokenizer = own.detokenizer(skip, after=prompt)
    text = "".join([*map(detokenizer.push, ids), detokenizer.finish()])
    assert own.decode(prompt, skip) + text == own.decode(prompt + ids, skip)


@pytest.mark.parametrize("kind", ["trained_byte_fallback", "sentencepiece_plain"])
@pytest.mark.parametrize("prompt", ["a", "a\n", "a🙂", "<s>a"])
def test_the_first_space_of_a_completion_stays(kind: str, prompt: str) -> None:
    own = tokenizer(kind)
    ids = own.encode("the quick🙂")
    detokenizer = own.detokenizer(True, after=own.encode(prompt))
    parts = [*map(detokenizer.push, ids), detokenizer.finish()]
    assert "".join(parts) == " the quick🙂"

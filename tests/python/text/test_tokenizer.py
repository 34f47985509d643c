"""Tokenizer folders: what is read from them, and what is wrong with bad ones."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import numpy as np
import pytest
import sentencepiece
from headrace.input.ernie4_5_tokenizer import Ernie4_5Tokenizer
from model_folders import write_json

from headrace.errors import TokenizerError
from headrace.text.callable_tokenizer import CallableTokenizer
from headrace.text.tokenizer import Tokenizer, load_tokenizer


def byte_level(folder: Path, **config: Any) -> Tokenizer:
    return Tokenizer.from_pretrained(model_folders.byte_level_folder(folder, **config))


def spm(folder: Path, config: Any = None, **options: Any) -> Tokenizer:
    return Tokenizer.from_pretrained(model_folders.sentencepiece_folder(folder, config, **options))


def test_no_special_tokens_unless_asked(tmp_path: Path) -> None:
    own = byte_level(tmp_path)
    assert own.encode("hello") == own.encode("hello", add_special_tokens=True)[1:]
    assert own.encode("hello", add_special_tokens=True)[0] == own.bos_token_id == 1


@pytest.mark.parametrize(
    ("config", "start", "end"),
    [
        ({}, [1], []),
        ({"add_bos_token": False}, [], []),
        ({"add_bos_token": True}, [1], []),
        ({"add_eos_token": True}, [1], [2]),
        ({"add_bos_token": False, "add_eos_token": True}, [], [2]),
    ],
)
def test_config_decides_the_ends(
    tmp_path: Path, config: dict[str, bool], start: list[int], end: list[int]
) -> None:
    own = byte_level(tmp_path, **config)
    middle = own.encode("hello")
    assert own.encode("hello", add_special_tokens=True) == [*start, *middle, *end]
    text = "hello " * 12_000  # far more than what is tokenized of it
    ids = own.encode(text)
    around = len(start) + len(end)
    for most in (around + 1, around + 9):
        cut = own.encode_beginning(text, most, add_special_tokens=True)
        assert cut == [*start, *ids[: most - around], *end]
        assert own.encode_beginning(text, most) == ids[:most]
    assert own.encode_beginning("hello", 99, add_special_tokens=True) == [*start, *middle, *end]
    assert len(own.encode_beginning(text, 1, add_special_tokens=True)) == 1


def test_special_tokens(tmp_path: Path) -> None:
    own = byte_level(tmp_path, additional_special_tokens=["<extra>", {"content": "<s>"}])
    assert own.special_tokens_map == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
    }
    assert own.all_special_tokens == ["<s>", "</s>", "<unk>", "<pad>", "<extra>"]
    assert own.all_special_ids == [1, 2, 0, 3]
    assert (own.eos_token, own.eos_token_id, own.pad_token_id) == ("</s>", 2, 3)
    assert own.convert_tokens_to_ids(["<s>", "no such token"]) == [1, 0]
    assert own.convert_ids_to_tokens([1, 10**9]) == ["<s>", None]
    assert len(own) == own.vocab_size


class Index:
    """An integer of a type that Python doesn't know."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def test_ids_are_of_any_integer_type(tmp_path: Path) -> None:
    own = byte_level(tmp_path)
    ids = own.encode("hello there")
    text = own.decode(ids)
    for several in (
        tuple(ids),
        iter(ids),
        np.array(ids),
        np.array(ids, np.uint16),
        map(Index, ids),
    ):
        assert own.decode(several) == text
    tokens = own.convert_ids_to_tokens(ids)
    assert own.convert_ids_to_tokens(np.array(ids)) == tokens
    for one in (ids[0], np.int64(ids[0]), np.array(ids[0]), Index(ids[0])):
        assert own.decode(one) == own.decode(ids[:1])
        assert own.convert_ids_to_tokens(one) == tokens[0]
    assert own.convert_ids_to_tokens(np.array(ids[:1])) == tokens[:1]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (5.0, "float"), ([5.0], "float"), (None, "NoneType"), ("12", "str"), ([[1]], "list"),
        (np.array([1.5]), "numpy.float64"), ({"input_ids": [1]}, "str"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_id(given: Any, kind: str, tmp_path: Path) -> None:
    own = byte_level(tmp_path)
    words = f"^a token id must be an int, got a value of type {kind}$"
    for call in (own.decode, own.convert_ids_to_tokens):
        with pytest.raises(TypeError, match=words):
            call(given)


def test_special_tokens_map_fills_the_gaps(tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    write_json(folder / "special_tokens_map.json", {"mask_token": "<m>", "eos_token": "no"})
    own = Tokenizer.from_pretrained(folder)
    assert own.special_tokens_map["mask_token"] == "<m>"
    assert own.eos_token == "</s>"


def test_added_tokens_missing_from_tokenizer_json(tmp_path: Path) -> None:
    added = {"9000": {"content": "<|im_end|>", "special": True}, "9001": {"content": "<think>"}}
    own = byte_level(tmp_path, added_tokens_decoder=added)
    ids = own.encode("<think>a<|im_end|>")
    assert len(ids) == 3
    assert own.decode(ids) == "<think>a<|im_end|>"
    assert own.decode(ids, skip_special_tokens=True) == "<think>a"


def test_truncation_of_the_file_is_ignored(tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    raw = model_folders.byte_level()
    raw.enable_truncation(4)
    raw.enable_padding(length=64)
    raw.save(str(folder / "tokenizer.json"))
    assert (
        Tokenizer.from_pretrained(folder).decode(
            Tokenizer.from_pretrained(folder).encode("a long enough text")
        )
        == "a long enough text"
    )


def test_tokenize(tmp_path: Path) -> None:
    own = byte_level(tmp_path)
    assert "".join(own.tokenize("the quick fox")) == "theĠquickĠfox"


def test_encode_wants_text(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="text must be a str, got int"):
        byte_level(tmp_path).encode(5)  # type: ignore[arg-type]


def test_lone_surrogates_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="cannot tokenize the text"):
        byte_level(tmp_path).encode("\ud800")


def test_lone_surrogates_are_an_error_for_sentencepiece(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="cannot tokenize the text"):
        spm(tmp_path).encode("\ud800")


def test_sentencepiece_matches_sentencepiece(tmp_path: Path) -> None:
    own = spm(tmp_path)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    for text in ("the quick fox", "  two  spaces ", "你好 🙂", ""):
        assert own.encode(text) == list(model.encode(text))
        assert own.decode(own.encode(text)) == model.decode(model.encode(text))


def test_sentencepiece_cuts_special_tokens_out(tmp_path: Path) -> None:
    added = {
        "700": {"content": "<|im|>", "special": True},
        "701": {"content": "<|im|>2", "special": False},
    }
    own = spm(tmp_path, {"added_tokens_decoder": added, "additional_special_tokens": ["</s>"]})
    ids = own.encode("fox<|im|>dog<|im|>2<s>")
    assert [token_id for token_id in ids if token_id in (1, 2, 700, 701)] == [700, 701, 1]
    assert own.decode(ids) == "fox<|im|>dog<|im|>2<s>"
    assert own.decode(ids, skip_special_tokens=True) == "foxdog<|im|>2"
    assert own.token_text(700) == "<|im|>"
    assert len(own) == 422


@pytest.mark.parametrize(
    ("config", "starts"),
    [
        ({}, False),
        ({"tokenizer_class": "LlamaTokenizer"}, True),
        ({"tokenizer_class": "LlamaTokenizer", "add_bos_token": False}, False),
        ({"add_bos_token": True}, True),
    ],
)
def test_sentencepiece_first_token(tmp_path: Path, config: Any, starts: bool) -> None:
    own = spm(tmp_path, config)
    ids = own.encode("fox", add_special_tokens=True)
    assert (ids[0] == own.bos_token_id) == starts
    assert own.encode("fox") == (ids[1:] if starts else ids)


def test_sentencepiece_without_legacy_adds_one_space_only(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    new, old = spm(tmp_path / "new", {"legacy": False}), spm(tmp_path / "old")
    space = "\u2581"
    assert old.tokenize("the<s>the") == [space + "the", "<s>", space + "the"]
    assert new.tokenize("the<s>the")[:2] == [space + "the", "<s>"]
    assert "".join(new.tokenize("the<s>the")[2:]) == "the"


def test_ernie_tokenizer_is_a_tokenizer(tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    own = Ernie4_5Tokenizer.from_pretrained(str(folder))
    assert isinstance(own, Ernie4_5Tokenizer)
    text = own.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert text == "<s>User: hi\n[plain]Assistant: "
    ids = own.apply_chat_template({"messages": [{"role": "user", "content": "hi"}]})
    assert own.decode(ids) == text


@pytest.mark.parametrize("name", ["tokenizer.model", "spm.model", "ernie_token_100k.model"])
def test_sentencepiece_file_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(model_folders.sentencepiece_model())
    assert load_tokenizer(tmp_path) is not None


def test_copies(tmp_path: Path) -> None:
    own = byte_level(tmp_path, chat_template="T")
    sent = pickle.loads(pickle.dumps(own))
    assert sent.encode("Hello") == own.encode("Hello")
    assert (sent.chat_template, sent.folder) == ("T", own.folder)
    called = CallableTokenizer(own)
    called.padding_side = "left"
    for made in (copy.copy(called), copy.deepcopy(called), pickle.loads(pickle.dumps(called))):
        assert made("Hello") == called("Hello")
        assert made.padding_side == "left"
    assert copy.deepcopy(own) is own


def test_a_decoder_that_takes_too_long(tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    model_folders.make_decoder_slow(folder)
    own = Tokenizer.from_pretrained(folder)
    (slow,) = own.encode("e")
    calls: list[Callable[[], object]] = [
        lambda: own.decode([slow]),
        lambda: own.token_text(slow),
        lambda: own.bytes_of(slow),
        lambda: own.detokenizer(after=[slow]),
    ]
    for call in calls:
        with pytest.raises(TokenizerError, match="takes too many steps"):
            call()
    with pytest.raises(TokenizerError, match="lone surrogate"):
        own.detokenizer(shown=frozenset({"\ud800"}))


def test_no_tokenizer(tmp_path: Path) -> None:
    assert load_tokenizer(tmp_path) is None
    with pytest.raises(
        TokenizerError, match=r"has no tokenizer: expected tokenizer\.json, .*tekken"
    ):
        Tokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer.json", "{", "tokenizer.json: not valid JSON"),
        ("tokenizer.json", '{"version": "1.0"}', "tokenizer.json: it has no model"),
        ("tokenizer_config.json", "[1]", "must hold a JSON object, not a list"),
        ("tokenizer_config.json", "{", r"tokenizer_config\.json: not valid JSON"),
        ("tokenizer_config.json", "[" * 100_000, r"tokenizer_config\.json: JSON is nested too"),
        ("tokenizer_config.json", '{"added_tokens_decoder": 3}', "added_tokens_decoder must be"),
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"x": "a"}}',
            'the id of the added token "a" must be',
        ),
        (
            "tokenizer_config.json",
            '{"chat_template": [{"name": "a"}]}',
            r"tokenizer_config\.json: an entry of chat_template needs a name and a template",
        ),
        (
            "added_tokens.json",
            '{"a": "b"}',
            'added_tokens.json: the id of the added token "a" must be',
        ),
        ("chat_template.jinja", b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_malformed_files(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_pretrained(folder)


def test_malformed_sentencepiece(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x00nonsense" * 10)
    with pytest.raises(TokenizerError, match=r"tokenizer\.model: not a sentencepiece model"):
        Tokenizer.from_pretrained(tmp_path)


def test_templates_of_a_folder(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    own = byte_level(tmp_path, chat_template=named)
    messages = [{"role": "user", "content": "x"}]
    assert own.chat_template == "D"
    assert own.apply_chat_template(messages, tokenize=False) == "D"
    assert own.apply_chat_template(messages, tools=[{}], tokenize=False) == "T"
    assert own.apply_chat_template(messages, chat_template="tool_use", tokenize=False) == "T"
    assert own.apply_chat_template(messages, chat_template="{{ 1 + 1 }}", tokenize=False) == "2"


def test_later_template_files_win(tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    assert Tokenizer.from_pretrained(folder).chat_template == "json"
    (folder / "chat_template.jinja").write_text("jinja")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    own = Tokenizer.from_pretrained(folder)
    assert own.chat_template == "jinja"
    assert own.apply_chat_template([], tools=[{}], tokenize=False) == "tools"

"""A tokenizer called as those of transformers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headrace.input.ernie4_5_tokenizer import Ernie4_5Tokenizer

from headrace.text.callable_tokenizer import CallableTokenizer
from headrace.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def own(toy_folder: Path) -> CallableTokenizer:
    tokenizer = CallableTokenizer(Tokenizer.from_pretrained(toy_folder))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def test_one_text_and_several(own: CallableTokenizer) -> None:
    plain = own._tokenizer.encode("ab", True)
    one = own("ab")
    assert one == {"input_ids": plain, "attention_mask": [1] * len(plain)}
    assert (one.input_ids, one["input_ids"], own.encode("ab")) == (plain, plain, plain)
    several = own(["ab", "abcd"], return_attention_mask=False)
    assert several == {"input_ids": [plain, own.encode("abcd")]}
    assert own("ab", add_special_tokens=False).input_ids == own._tokenizer.encode("ab")
    with pytest.raises(TypeError, match="text must be a str"):
        own(["ab", 5])
    with pytest.raises(TypeError, match="unexpected keyword"):
        own("ab", paddding=True)


def test_padding(own: CallableTokenizer) -> None:
    short, long = own.encode("ab"), own.encode("abcd")
    pad, missing = own.pad_token_id, len(long) - len(short)
    right = own(["ab", "abcd"], padding=True)
    assert right.input_ids == [short + [pad] * missing, long]
    assert right.attention_mask == [[1] * len(short) + [0] * missing, [1] * len(long)]
    left = own(["ab", "abcd"], padding="longest", padding_side="left")
    assert left.input_ids == [[pad] * missing + short, long]
    own.padding_side = "left"
    assert own(["ab", "abcd"], padding=True) == left
    wide = own("ab", padding="max_length", max_length=9)
    assert wide.input_ids == [pad] * (9 - len(short)) + short
    assert len(own("ab", padding=True, pad_to_multiple_of=16).input_ids) == 16
    assert own.pad([own("ab"), own("abcd")]) == left
    assert own.pad(own(["ab", "abcd"])) == left


def test_truncation(own: CallableTokenizer) -> None:
    row = own.encode("abcdef")
    assert own("abcdef", max_length=3).input_ids == row[:3]
    assert own("abcdef", truncation=True, max_length=3).input_ids == row[:3]
    assert own("abcdef", truncation=False, max_length=3).input_ids == row
    own.truncation_side = "left"
    assert own("abcdef", truncation=True, max_length=3).input_ids == row[-3:]
    own.model_max_length = 2
    assert own("abcdef", truncation=True).input_ids == row[-2:]
    own.model_max_length = None
    with pytest.warns(UserWarning, match="no max_length"):
        assert own("abcdef", truncation=True).input_ids == row


def test_arrays(own: CallableTokenizer) -> None:
    numpy = pytest.importorskip("numpy")
    encoded = own(["ab", "abcd"], padding=True, return_tensors="np")
    assert encoded.input_ids.shape == encoded.attention_mask.shape == (2, len(own.encode("abcd")))
    assert isinstance(encoded["input_ids"], numpy.ndarray)
    assert encoded.to("cpu") is encoded
    assert own("ab", return_tensors="np").input_ids.tolist() == [own.encode("ab")]
    assert own.decode(own("ab", return_tensors="np").input_ids[0], True) == "ab"
    with pytest.raises(ValueError, match="different lengths"):
        own(["ab", "abcd"], return_tensors="np")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"padding": "wide"}, "padding must be"),
        ({"truncation": "middle"}, "truncation must be"),
        ({"padding_side": "up"}, "padding_side must be 'left' or 'right', got 'up'"),
        ({"return_tensors": "tf"}, "return_tensors must be None, 'pt' or 'np', got 'tf'"),
    ],
)
def test_bad_arguments(own: CallableTokenizer, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own("ab", **values)


def test_what_can_be_set(own: CallableTokenizer) -> None:
    own.pad_token = None
    with pytest.raises(ValueError, match="padding needs a padding token"):
        own("ab", padding=True)
    own.pad_token_id = own.eos_token_id
    assert own.pad_token == own.eos_token
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        own.pad_token = "<nothing>"
    with pytest.raises(AttributeError, match="eos_token can't be set"):
        own.eos_token = "x"


def test_templates(own: CallableTokenizer) -> None:
    text = own.apply_chat_template(HI, tokenize=False)
    prompted = own.apply_chat_template(HI, tokenize=False, add_generation_prompt=True)
    assert prompted.startswith(text)
    assert prompted != text
    ids = own.apply_chat_template(HI)
    assert ids == own.encode(text, add_special_tokens=False)
    assert own.apply_chat_template(HI, return_dict=True) == own(text, add_special_tokens=False)
    both = own.apply_chat_template([HI, HI], tokenize=False)
    assert both == [text, text]
    assert own.apply_chat_template([HI, HI], padding=True) == [ids, ids]
    own.chat_template = "{{ messages[0].content }}!"
    assert own.apply_chat_template(HI, tokenize=False) == "hi!"
    with pytest.raises(ValueError, match="continue_final_message"):
        own.apply_chat_template(HI, continue_final_message=True)


def test_saved_files(own: CallableTokenizer, tmp_path: Path) -> None:
    paths = own.save_pretrained(tmp_path / "copy")
    assert str(tmp_path / "copy" / "tokenizer.json") in paths
    again = Tokenizer.from_pretrained(tmp_path / "copy")
    assert again.encode("some text") == own._tokenizer.encode("some text")
    assert again.chat_template == own.chat_template
    assert own.name_or_path == str(own._tokenizer.folder)
    assert len(own.get_vocab()) == len(own)


def test_ernies_defaults(toy_folder: Path) -> None:
    own = Ernie4_5Tokenizer.from_pretrained(toy_folder, padding_side="left")
    plain = Tokenizer.from_pretrained(toy_folder)
    assert own("ab").input_ids == own.encode("ab") == plain.encode("ab")
    assert own.apply_chat_template(HI, tokenize=False) == plain.apply_chat_template(
        HI, tokenize=False
    )
    assert own.padding_side == "left"


def test_decoding(own: CallableTokenizer) -> None:
    rows = [own.encode("ab"), own.encode("cd")]
    assert own.batch_decode(rows, skip_special_tokens=True) == ["ab", "cd"]
    with pytest.warns(UserWarning, match="no effect"):
        own.decode(rows[0], clean_up_tokenization_spaces=True)

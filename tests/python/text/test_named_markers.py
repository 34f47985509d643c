"""Markers that a vocabulary has as words, and only the side files name as special."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import model_folders
import pytest

from headrace.text.tokenizer import Tokenizer

END = "<|end|>"


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("tokenizer_config.json", {"eos_token": END}),
        ("tokenizer_config.json", {"eos_token": {"content": END}}),
        ("tokenizer_config.json", {"additional_special_tokens": [END]}),
        ("tokenizer_config.json", {"extra_special_tokens": {"end_token": END}}),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"512": {"content": END, "special": True}}},
        ),
        ("special_tokens_map.json", {"eos_token": END}),
        ("special_tokens_map.json", {"additional_special_tokens": [END]}),
    ],
)
def test_named_markers_are_one_token_and_no_text(tmp_path: Path, file: str, named: Any) -> None:
    spec = json.loads(model_folders.byte_level().to_str())
    place = len(spec["model"]["vocab"])
    spec["model"]["vocab"][END] = place
    model_folders.write_json(tmp_path / "tokenizer.json", spec)
    model_folders.write_json(tmp_path / file, named)
    own = Tokenizer.from_pretrained(tmp_path)
    ids = own.encode(f"hello{END}")
    assert ids[-1] == place
    assert own.decode(ids, True) == "hello"
    assert own.decode(ids) == f"hello{END}"
    detokenizer = own.detokenizer(True)
    assert "".join([*map(detokenizer.push, ids), detokenizer.finish()]) == "hello"
    assert len(own) == place + 1


def test_names_that_no_vocabulary_has_make_no_tokens(tmp_path: Path) -> None:
    tokenizer = model_folders.byte_level()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model_folders.write_json(tmp_path / "tokenizer_config.json", {"eos_token": END})
    assert len(Tokenizer.from_pretrained(tmp_path)) == tokenizer.get_vocab_size()

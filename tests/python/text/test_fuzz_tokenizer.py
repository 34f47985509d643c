"""Damaged tokenizer files end in a TokenizerError, never in another exception."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import model_folders
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import TemplateError, TokenizerError
from headrace.text.tokenizer import Tokenizer, load_tokenizer

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**40,
    1.5,
    "",
    "x",
    "\u2581",
    [],
    [1],
    {},
    {"type": "Fuse"},
]


@functools.cache
def originals() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = model_folders.byte_level_folder(Path(name))
        names = ("tokenizer.json", "tokenizer_config.json")
        files = {name: json.loads((folder / name).read_text()) for name in names}
        model_folders.byte_fallback(350).save(str(folder / "tokenizer.json"))
        files["fallback"] = json.loads((folder / "tokenizer.json").read_text())
        return files


def damaged(value: Any, rng: random.Random) -> Any:
    """A copy with one random place replaced, removed or doubled."""
    value = json.loads(json.dumps(value))
    place, parent = value, None
    key: Any = None
    while isinstance(place, (dict, list)) and place and (parent is None or rng.random() < 0.8):
        parent = place
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        place = place[key]
    if parent is None:
        return rng.choice(VALUES)
    if isinstance(parent, dict) and rng.random() < 0.3:
        del parent[key]
    else:
        parent[key] = rng.choice(VALUES)
    return value


def exercise(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer is not None
    ids = tokenizer.encode("hello 你好 <s>", add_special_tokens=True)
    detokenizer = tokenizer.detokenizer(True)
    text = "".join(detokenizer.push(token_id) for token_id in ids) + detokenizer.finish()
    assert text == tokenizer.decode(ids, True)
    tokenizer.token_text(5)
    assert isinstance(tokenizer.all_special_ids, list)
    with contextlib.suppress(TemplateError):
        tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("kind", ["tokenizer.json", "tokenizer_config.json", "fallback"])
@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_damaged_json(kind: str, seed: int) -> None:
    files = dict(originals())
    rng = random.Random(seed)
    spoiled = files[kind]
    for _ in range(rng.randint(1, 3)):
        spoiled = damaged(spoiled, rng)
    main = files["tokenizer.json"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        is_config = kind == "tokenizer_config.json"
        model_folders.write_json(folder / "tokenizer.json", main if is_config else spoiled)
        config = spoiled if is_config else files["tokenizer_config.json"]
        model_folders.write_json(folder / "tokenizer_config.json", config)
        with contextlib.suppress(TokenizerError):
            exercise(folder)


def test_subword_prefix_that_merges_lack(tmp_path: Path) -> None:
    """The tokenizers package would end the process over this one."""
    spoiled = json.loads(json.dumps(originals()["tokenizer.json"]))
    spoiled["model"]["continuing_subword_prefix"] = "\u2581"
    model_folders.write_json(tmp_path / "tokenizer.json", spoiled)
    with pytest.raises(TokenizerError, match="continuing_subword_prefix"):
        Tokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("nested", [False, True])
def test_template_of_a_token_that_it_does_not_define(
    nested: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The package panics over this one; with a backtrace and little memory it crashed or hung."""
    spoiled = json.loads(json.dumps(originals()["tokenizer.json"]))
    processor = spoiled["post_processor"]
    processor["special_tokens"] = {}
    if nested:
        spoiled["post_processor"] = {"type": "Sequence", "processors": [processor]}
    model_folders.write_json(tmp_path / "tokenizer.json", spoiled)
    with pytest.raises(TokenizerError, match=r'tokenizer\.json: .* special token "<s>"'):
        Tokenizer.from_pretrained(tmp_path).encode("a", add_special_tokens=True)
    assert capfd.readouterr().err == ""


def test_spoiled_character_map_of_sentencepiece(tmp_path: Path) -> None:
    """The package ended the process over about one of a hundred, up to its version 0.2.1."""
    whole = model_folders.sentencepiece_model()
    text = "".join(map(chr, [*range(0x20, 0x600), *range(0x1E00, 0x2400), *range(0xFB00, 0xFFF0)]))
    rng = random.Random(1)
    outcomes = []
    for _ in range(300):
        spoiled = bytearray(whole)
        for _ in range(4):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        (tmp_path / "tokenizer.model").write_bytes(spoiled)
        try:
            outcomes.append(len(Tokenizer.from_pretrained(tmp_path).encode(text)) > 0)
        except TokenizerError:
            outcomes.append(False)
    assert 0 < sum(outcomes) < len(outcomes)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_random_bytes_as_sentencepiece(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer.model").write_bytes(data)
        with contextlib.suppress(TokenizerError):
            exercise(folder)

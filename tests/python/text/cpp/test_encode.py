"""Ids, offsets and texts are those of the `tokenizers` package, for every pipeline of the common
model families."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pipelines
import pytest
import text_cases
import tokenizers

from headrace import _core

FEW = 120
NAMES = (
    "gpt2", "gpt2_prefix", "smollm2", "llama3", "qwen2", "qwen3.5", "o200k", "tekken", "deepseek",
    "olmo2", "modernbert", "llama2", "phi3", "mistral", "gemma", "gemma4", "ernie", "unknown",
    "unfused", "vanishing",
)  # fmt: skip


def write(folder: Path, spec: Any) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    return folder


def both(folder: Path, spec: pipelines.Spec) -> tuple[Any, tokenizers.Tokenizer]:
    text = json.dumps(spec, ensure_ascii=False)
    own = _core.TextTokenizer(str(write(folder, spec)))
    return own, tokenizers.Tokenizer.from_str(text)


def check(own: Any, package: tokenizers.Tokenizer, texts: Iterable[str]) -> None:
    for number, text in enumerate(texts):
        special = number % 2 == 0
        expected = package.encode(text, add_special_tokens=special)
        ids, offsets = own.encode_with_offsets(text, add_special_tokens=special)
        assert ids == expected.ids, text
        assert offsets == expected.offsets, text
        assert own.encode(text, add_special_tokens=special) == ids, text
        assert own.decode(ids) == package.decode(ids, skip_special_tokens=False), text


@pytest.mark.parametrize("name", NAMES)
def test_equal_to_the_package(tmp_path: Path, name: str) -> None:
    spec = pipelines.specs()[name]
    own, package = both(tmp_path, spec)
    special = [token["content"] for token in spec["added_tokens"]]
    check(own, package, text_cases.texts(hash_of(name), FEW, pipelines.corpus(), special))


def hash_of(name: str) -> int:
    return sum(name.encode())


def test_every_pipeline_is_tested() -> None:
    assert list(pipelines.specs()) == list(NAMES)


def test_old_and_new_spelling_of_merges(tmp_path: Path) -> None:
    spec = pipelines.specs()["qwen2"]
    merges = [merge if isinstance(merge, str) else " ".join(merge)
              for merge in spec["model"]["merges"]]  # fmt: skip
    old = {**spec, "model": {**spec["model"], "merges": merges}}
    new = {**spec, "model": {**spec["model"], "merges": [merge.split(" ") for merge in merges]}}
    own_old = _core.TextTokenizer(str(write(tmp_path, old)))
    own_new = _core.TextTokenizer(str(write(tmp_path, new)))
    text = pipelines.corpus()[:5000]
    assert own_old.encode(text) == own_new.encode(text)


def test_members_in_any_order(tmp_path: Path) -> None:
    spec = pipelines.specs()["llama3"]
    model = dict(reversed(spec["model"].items()))
    turned = {**dict(reversed(spec.items())), "model": model}
    own, package = both(tmp_path, turned)
    assert own.encode("Hello world") == package.encode("Hello world").ids[1:]


@pytest.mark.skipif(text_cases.CASES < 10_000, reason="takes minutes: HEADRACE_TEXT_CASES=10000")
@pytest.mark.parametrize("name", NAMES)
def test_every_character(tmp_path: Path, name: str) -> None:
    own, package = both(tmp_path, pipelines.specs()[name])
    check(own, package, text_cases.every_character())


def _added(size: int, rng: random.Random) -> list[pipelines.Spec]:
    contents = rng.sample(("ab", "a", "abc", "bc", "b", " a", "a ", "é", "éa", "\n", "  "), 5)
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [
        pipelines.added_token(size + i, content, **{flag: rng.random() < 0.4 for flag in flags})
        for i, content in enumerate(contents)
    ]


@pytest.mark.parametrize("seed", range(max(10, text_cases.CASES // 100)))
def test_added_tokens(tmp_path: Path, seed: int) -> None:
    """Random sets of tokens, with every flag, in texts made of their parts and spaces."""
    rng = random.Random(seed)
    vocabulary = {character: i for i, character in enumerate("abcdé xyz\n▁\u3000²_A")}
    spec: pipelines.Spec = {
        "version": "1.0",
        "added_tokens": _added(len(vocabulary), rng),
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    for token in spec["added_tokens"]:
        token["id"] = vocabulary.get(token["content"], token["id"])
    known = {token["content"]: token for token in spec["added_tokens"]}
    new = len(vocabulary)
    for content, token in known.items():  # new tokens are numbered behind the vocabulary
        if content not in vocabulary:
            token["id"], new = new, new + 1
    own, package = both(tmp_path, spec)
    for _ in range(60):
        parts = "".join(rng.choice((*known, *"abcéxyz ²_A\n", "  ", "\u3000")) for _ in range(12))
        expected = encoded(package, parts)
        if expected is None:  # a token's spaces, all of it, belong to the one before
            own.encode(parts)
            continue
        assert own.encode_with_offsets(parts) == (expected.ids, expected.offsets), parts
        package.encode_special_tokens = True
        assert own.encode(parts, special_as_text=True) == package.encode(parts).ids, parts
        package.encode_special_tokens = False


def encoded(package: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding | None:
    """None if the package fails."""
    try:
        return package.encode(text)
    except BaseException as error:  # of Rust: it is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return None

"""Words and their places are those of the `tokenizers` package, for every kind of pre-tokenizer.

The vocabulary holds nothing, so that each word is one unknown token.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import text_cases
import tokenizers

from headrace import _core

FEW = 60
MODEL: dict[str, Any] = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": {"[UNK]": 0},
}
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
# Of families without a matcher of their own, and what is easily got wrong.
PATTERNS = (
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"(?=(\d{3})+(?!\d))",
    r"\p{Han}+",
    r"[\p{L}&&[^\p{Han}]]+",
    r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    r"\s{3}(?!\S)|\s",
    r"\s+$",
    "[\r\n]",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "x*",
    r"\b",
    r"(?<=\p{Lu}|\s)\w",
    r"(?i:[a-k]+)",
    r"\w{1,3}+|\W++",
    r"[^\w\s]+|[\w]",
)


def split(pattern: dict[str, str], behavior: str, invert: bool) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def splitters() -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = [
        split(pattern, behavior, invert)
        for behavior in BEHAVIORS
        for invert in (False, True)
        for pattern in ({"String": " "}, {"String": ""}, {"Regex": r"\s+"}, {"Regex": "x*"})
    ]
    own += [split({"Regex": pattern}, "Isolated", False) for pattern in PATTERNS]
    own += [{"type": "Punctuation", "behavior": behavior} for behavior in BEHAVIORS]
    own += [{"type": name} for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")]
    own += [{"type": "Digits", "individual_digits": each} for each in (False, True)]
    own += [
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
        for scheme in ("always", "first", "never")
        for cut in (False, True)
    ]
    own += [{"type": "CharDelimiterSplit", "delimiter": "e"}, {"type": "FixedLength", "length": 3}]
    return own


def check(folder: Path, splitter: dict[str, Any], count: int) -> None:
    spec: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": splitter,
        "post_processor": None,
        "decoder": None,
        "model": MODEL,
    }
    text = json.dumps(spec)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    own = _core.TextTokenizer(str(folder))
    package = tokenizers.Tokenizer.from_str(text)
    for case in text_cases.texts(len(text), count, " the x1 Ab\n", []):
        expected = package.encode(case, add_special_tokens=False).offsets
        assert own.encode_with_offsets(case, add_special_tokens=False)[1] == expected, case


@pytest.mark.parametrize("number", range(len(splitters())))
def test_each_splitter(tmp_path: Path, number: int) -> None:
    check(tmp_path, splitters()[number], FEW)


def test_sequences(tmp_path: Path) -> None:
    rng = random.Random(5)
    for _ in range(40):
        steps = rng.sample(splitters(), rng.randint(2, 3))
        check(tmp_path, {"type": "Sequence", "pretokenizers": steps}, FEW // 6)

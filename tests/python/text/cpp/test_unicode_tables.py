"""The tables of characters are what the installed `tokenizers` package shows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tools"))

import unicode_oracle  # noqa: E402
import unicode_tables  # noqa: E402


def stored(file: str, name: str) -> list[int]:
    text = (unicode_tables.FOLDER / file).read_text()
    found = re.search(rf" {name}\[\d+\] = {{([^}}]*)}}", text)
    assert found is not None
    return [int(word) for word in found[1].split(",") if word.strip()]


def test_flags_of_characters() -> None:
    """Of every 67th character, and of those where a range begins."""
    classes = stored("char_classes.cc", "kClasses")
    flags: dict[int, int] = {}
    asked = {0}
    begin = 0
    for packed in stored("char_classes.cc", "kClassRanges"):
        end = begin + (packed >> 8)
        picked = {begin, *range(begin + -begin % 67, end, 67)}
        asked |= picked
        flags |= dict.fromkeys(picked, classes[packed & 0xFF] & 0xFFFF)
        begin = end
    assert begin == 0x110000
    characters = sorted(c for c in asked if not 0xD800 <= c < 0xE000)
    shown = unicode_tables.character_flags(characters)
    wrong = [f"U+{c:04X}" for c in characters if shown.get(c, 0) != flags[c]]
    assert not wrong, "run python tools/unicode_tables.py"


@pytest.mark.skipif("HEADRACE_TEXT_CASES" not in os.environ, reason="takes a minute")
def test_all_tables() -> None:
    for name, body in unicode_tables.files().items():
        old = (unicode_tables.FOLDER / name).read_text()
        assert old == unicode_tables.source(body), f"{name}: run python tools/unicode_tables.py"


def test_the_trie_of_a_charsmap() -> None:
    """What the questions about grapheme clusters are asked with."""
    rules = {"a": "x", "ab": "", "é": "yz"}
    normalizer = unicode_oracle.Charsmap(rules).normalizer()
    assert normalizer.normalize_str("a-é-b-ba") == "x-yz-b-bx"

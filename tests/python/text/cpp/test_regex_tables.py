"""The tables of the regex engine are what the installed `tokenizers` package shows."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tools"))

import regex_tables  # noqa: E402

END = regex_tables.LAST + 1


def words(file: str, name: str) -> list[str]:
    text = (regex_tables.ROOM / file).read_text(encoding="utf-8")
    found = re.search(rf" {name}Values\[\] = {{(.*?)}};", text, re.DOTALL)
    assert found is not None
    return re.findall(r"[\w\"-]+", found[1])


def runs(file: str, name: str) -> list[tuple[int, int]]:
    """Start and index of each run of characters."""
    return [(int(word, 16) >> 8, int(word, 16) & 0xFF) for word in words(file, name)]


def pairs(name: str, file: str = "properties.cc") -> list[tuple[int, int]]:
    numbers = [int(word, 16) for word in words(file, name)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def picked(places: set[int]) -> str:
    """The characters there and in front of them."""
    near = {c for place in places for c in (place - 1, place)}
    return "".join(chr(c) for c in sorted(near) if 0 <= c < END and not 0xD800 <= c < 0xE000)


def shown(pattern: str, text: str) -> set[str]:
    return {c for first, end in regex_tables.matched(pattern, text) for c in text[first:end]}


def index_of(table: list[tuple[int, int]], text: str) -> dict[str, int]:
    """Of characters in ascending order."""
    ends = [start for start, _ in table[1:]] + [END]
    found, place = {}, 0
    for c in text:
        while ord(c) >= ends[place]:
            place += 1
        found[c] = table[place][1]
    return found


@pytest.mark.parametrize(
    ("file", "table", "names"),
    [
        ("categories.cc", "kCategories", "kCategoryNames"),
        ("scripts.cc", "kScripts", "kScriptNames"),
    ],
)
def test_runs_begin_where_the_package_says(file: str, table: str, names: str) -> None:
    """What a category or script has: its first and last characters, and those beside them. For
    scripts, whose patterns take long to compile, of every eighth one."""
    known = [word.strip('"') for word in words(file, names)]
    stored = runs(file, table)
    assert all(a < b for (a, _), (b, _) in pairwise(stored))
    text = picked({start for start, _ in stored} | set(range(0, END, 997)))
    index = index_of(stored, text)
    for number in range(1, len(known), 1 if file == "categories.cc" else 8):
        expected = {c for c in text if index[c] == number}
        assert shown(rf"\p{{{known[number]}}}+", text) == expected, known[number]


def test_properties_are_categories_and_others() -> None:
    categories = runs("categories.cc", "kCategories")
    for name, contained in regex_tables.PROPERTIES.items():
        others = pairs(f"kOther{name.replace('_', '')}")
        text = picked(
            {start for start, _ in categories} | {c for a, b in others for c in (a, b + 1)}
        )
        index = index_of(categories, text)
        numbers = {regex_tables.CATEGORIES.index(category) for category in contained}
        expected = {
            c for c in text if index[c] in numbers or any(a <= ord(c) <= b for a, b in others)
        }
        assert shown(rf"\p{{{name}}}+", text) == expected, name


def test_folds() -> None:
    """Of every 29th character that has another case: all of the others."""
    following: dict[str, str] = {}
    numbers = iter(int(word, 0) for word in words("folds.cc", "kFolds"))
    for first, last, step, delta in zip(*(numbers,) * 4, strict=True):
        following |= {chr(c): chr(c + delta) for c in range(first, last + 1, step)}
    text = "".join(sorted(following))
    for c in text[::29]:
        cycle = [c]
        while following[cycle[-1]] != c:
            cycle.append(following[cycle[-1]])
        found = regex_tables.matched(rf"(?i:\x{{{ord(c):x}}})", text)
        # Some characters are two of others, too.
        same = {text[first:end] for first, end in found if end == first + 1}
        assert same == set(cycle), cycle


def test_characters_that_become_several() -> None:
    folding = {chr(int(word, 16)) for word in words("folds.cc", "kLongFolding")}
    expected = {c for c in regex_tables.characters(0x1FFFF) if len(c.casefold()) > 1}
    assert folding == expected

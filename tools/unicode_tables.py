"""Writes cpp/text/unicode/tables: python tools/unicode_tables.py

What the `tokenizers` package thinks of each character (unicode_oracle.py asks it), and what
Python's `str` does, for chat templates. What it writes is part of the repository: builds don't need
it. A test compares (tests/python/text/cpp/test_unicode_tables.py).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import unicode_oracle as oracle

FOLDER = Path(__file__).resolve().parents[1] / "cpp/text/unicode/tables"
SELF = "tools/unicode_tables.py"

FLAGS = [
    "kLetter", "kNumber", "kMark", "kSpace", "kUpper", "kLower", "kPunctuation", "kSymbol",
    "kOnigWord", "kRustWord", "kNumeric", "kPunctuation8", "kControl8", "kMark9", "kNonspacing8",
    "kHan",
]  # fmt: skip
KINDS = [
    "kOther", "kCarriageReturn", "kLineFeed", "kControl", "kExtend", "kConjunctExtend", "kLinker",
    "kZwj", "kRegionalIndicator", "kPrepend", "kSpacingMark", "kLeadingJamo", "kVowelJamo",
    "kTrailingJamo", "kPictographic", "kConsonant",
]  # fmt: skip
FORMS = ["kChangedByNfc", "kChangedByNfkc", "kDecomposes", "kDecomposesCompat", "kChangedByLower"]

HANGUL = range(0xAC00, 0xD7A4)


def character_flags(asked: list[int]) -> dict[int, int]:
    """The CharFlags of each, if it has any. `asked` begins with U+0000."""
    sets = {name: oracle.regex_class(p, asked) for name, p in oracle.REGEX_CLASSES.items()}
    space = sets["kSpace"]
    sets["kRustWord"] = oracle.rust_word(space, asked)
    sets["kNumeric"] = oracle.numeric(asked)
    sets["kPunctuation8"] = oracle.bert_punctuation(asked)
    sets["kControl8"] = oracle.bert_controls(space, asked)
    sets["kMark9"] = oracle.combining_marks(asked)
    # It removes these behind NFD, which changes some itself.
    changed = oracle.normal_form("NFD", asked)
    whole = (c for c in asked if c not in changed and c not in HANGUL)
    sets["kNonspacing8"] = oracle.removed_by(oracle.bert_normalizer(strip=True), whole)
    return bits(FLAGS, sets)


class Forms:
    """The normal forms: Unicode 9."""

    def __init__(self) -> None:
        self.marks = oracle.combining_marks(oracle.EVERY)
        self.canonical = oracle.normal_form("NFD")
        self.compatible = oracle.normal_form("NFKD")
        self.classes = oracle.combining_classes(self.marks, self.canonical)
        composed = oracle.compositions(self.canonical)
        self.pairs = {c: self._pair(self.canonical[c], composed) for c in sorted(composed)}

    def _pair(self, whole: str, composed: set[int]) -> tuple[int, int]:
        """A decomposition is a first part, which may be composed itself, and one more character."""
        first = whole[:-1]
        if len(first) > 1:
            first = next(chr(c) for c in composed if self.canonical[c] == first)
        return ord(first), ord(whole[-1])

    def flags(self) -> dict[str, set[int]]:
        """Changed by NFC: alone, or perhaps by what is in front of it."""
        seconds = {b for _, b in self.pairs.values()}
        seconds |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
        hangul = set(HANGUL)
        return {
            "kChangedByNfc": seconds | set(oracle.normal_form("NFC")),
            "kChangedByNfkc": seconds | set(oracle.normal_form("NFKC")),
            "kDecomposes": hangul | set(self.canonical),
            "kDecomposesCompat": hangul | set(self.compatible),
        }


def grapheme_kinds() -> dict[int, str]:
    """By character, if it isn't kOther. Syllables of Hangul are known by their numbers."""
    breaks = oracle.Breaks(oracle.PLANES)
    prepend = breaks.prepend()
    control = breaks.control()
    extending = breaks.extending() - control
    before = {jamo: breaks.before_jamo(jamo) - prepend for jamo in "\u1100\u1161\u11a8"}
    leading = before["\u1100"]
    vowels = (before["\u1161"] & before["\u11a8"]) - set(HANGUL)
    kinds = dict.fromkeys(extending, "kSpacingMark")
    extends = extending & breaks.between("\u00a9", "\u200d", "\u00a9")
    kinds |= dict.fromkeys(extends, "kExtend")
    conjunct = extends & breaks.between("\u0915", "\u094d", "\u0915")
    kinds |= dict.fromkeys(conjunct, "kConjunctExtend")
    kinds |= dict.fromkeys(extends & breaks.between("\u0915", "", "\u0915"), "kLinker")
    kinds |= dict.fromkeys(prepend - extending, "kPrepend")
    kinds |= dict.fromkeys(breaks.between("", "\u094d", "\u0915") - prepend, "kConsonant")
    kinds |= dict.fromkeys(breaks.pictographic() - extending, "kPictographic")
    kinds |= dict.fromkeys(leading, "kLeadingJamo") | dict.fromkeys(vowels, "kVowelJamo")
    trailing = before["\u11a8"] - before["\u1161"] - set(HANGUL)
    kinds |= dict.fromkeys(trailing, "kTrailingJamo") | dict.fromkeys(control, "kControl")
    # Two regional indicators are 8 bytes, so the package never shows whether it joins them.
    kinds |= dict.fromkeys(range(0x1F1E6, 0x1F200), "kRegionalIndicator")
    return kinds | {0x200D: "kZwj", 0x0A: "kLineFeed", 0x0D: "kCarriageReturn"}


def bits(names: list[str], sets: Mapping[str, set[int]]) -> dict[int, int]:
    """Each character's flags."""
    values: dict[int, int] = {}
    for i, name in enumerate(names):
        for c in sets[name]:
            values[c] = values.get(c, 0) | 1 << i
    return values


def runs(value: Callable[[int], int]) -> list[tuple[int, int]]:
    """Where new values begin. Surrogates have what is in front of them."""
    found: list[tuple[int, int]] = []
    for c in oracle.EVERY:
        new = value(c)
        if not found or found[-1][1] != new:
            found.append((c, new))
    return found


def numbers(values: Iterable[int]) -> str:
    """As many a line as fit: these files are not for reading."""
    lines, line = [], ""
    for value in values:
        word = f"{value},"
        if len(line) + len(word) > 100:
            lines.append(line)
            line = ""
        line += word
    return "\n".join([*lines, line])


def array(kind: str, name: str, values: Iterable[int]) -> str:
    listed = list(values)
    return (
        f"extern const {kind} {name}[{len(listed)}] = {{\n{numbers(listed)}\n}};\n"
        f"extern const size_t {name}Size = {len(listed)};\n"
    )


def char_classes(forms: Forms, lower: dict[int, str]) -> str:
    """A class is all that is known of a character; few differ."""
    flags = character_flags(oracle.EVERY)
    form = bits(FORMS, forms.flags() | {"kChangedByLower": set(lower)})
    kinds = grapheme_kinds()
    found = runs(
        lambda c: (
            flags.get(c, 0)
            | forms.classes.get(c, 0) << 16
            | KINDS.index(kinds.get(c, "kOther")) << 24
            | form.get(c, 0) << 32
        )
    )
    classes = list(dict.fromkeys(value for _, value in found))
    numbered = {value: i for i, value in enumerate(classes)}
    ends = [c for c, _ in found[1:]] + [0x110000]
    return array("uint64_t", "kClasses", classes) + array(
        "uint32_t",
        "kClassRanges",
        (end - c << 8 | numbered[value] for (c, value), end in zip(found, ends, strict=True)),
    )


def utf16(text: str) -> list[int]:
    data = text.encode("utf-16-le")
    return [data[i] | data[i + 1] << 8 for i in range(0, len(data), 2)]


def decomposition_runs(table: dict[int, str]) -> list[int]:
    """Runs of neighbours with decompositions of one length: tables.h has the form."""
    words: list[int] = []
    entries = {c: utf16(new) for c, new in table.items()}
    waiting = sorted(entries)
    while waiting:
        first, size = waiting[0], len(entries[waiting[0]])
        count = 1
        while (
            count < min(len(waiting), 255)
            and waiting[count] == first + count
            and len(entries[first + count]) == size
        ):
            count += 1
        words += [first & 0xFFFF, (first >> 16) << 13 | size << 8 | count]
        words += [word for c in waiting[:count] for word in entries[c]]
        del waiting[:count]
    return words


def canonical(forms: Forms) -> str:
    pairs = [w for c, (a, b) in forms.pairs.items() for w in utf16(chr(c) + chr(a) + chr(b))]
    return array("uint16_t", "kCanonical", decomposition_runs(forms.canonical)) + array(
        "uint16_t", "kCompositions", pairs
    )


def compatible(forms: Forms) -> str:
    others = {c: new for c, new in forms.compatible.items() if forms.canonical.get(c) != new}
    return array("uint16_t", "kCompatible", decomposition_runs(others))


def case_runs(table: dict[int, str]) -> list[int]:
    """Neighbours, or every second of them, that move by one distance: tables.h has the form."""
    single = {c: ord(new) - c for c, new in table.items() if len(new) == 1}
    waiting = sorted(single)
    values: list[int] = []
    while waiting:
        first, count, step = waiting[0], 1, 1
        if len(waiting) > 1 and waiting[1] - first <= 2:
            step = waiting[1] - first
        while (
            count < min(len(waiting), 1023)
            and waiting[count] == first + count * step
            and single[waiting[count]] == single[first]
        ):
            count += 1
        if count == 1:
            step = 1
        values += [first | count << 21 | (step - 1) << 31, single[first] & 0xFFFFFFFF]
        del waiting[:count]
    return values


def case_specials(table: dict[int, str]) -> list[int]:
    """A character that becomes several: itself, their number, them. All are below U+10000."""
    longer = sorted((c, new) for c, new in table.items() if len(new) > 1)
    return [word for c, new in longer for word in (c, len(new), *map(ord, new))]


def case_table(name: str, table: dict[int, str]) -> str:
    return array("uint32_t", f"{name}Runs", case_runs(table)) + array(
        "uint16_t", f"{name}Specials", case_specials(table)
    )


def python_cases() -> str:
    changes: dict[str, Callable[[str], str]] = {
        "kPyLower": str.lower,
        "kPyUpper": str.upper,
        "kPyTitle": str.title,
        "kPyFold": str.casefold,
    }
    return "".join(
        case_table(name, {c: new for c in oracle.EVERY if (new := change(chr(c))) != chr(c)})
        for name, change in changes.items()
    )


def python_flags(c: int) -> int:
    """PythonFlags, in their order."""
    char = chr(c)
    tests = (
        char.isalpha(), char.isdecimal(), char.isdigit(), char.isnumeric(), char.isspace(),
        char.isprintable(), char.islower(), char.isupper(), unicodedata.category(char) == "Lt",
        # A letter behind a cased one isn't a word's first.
        (char + "a").title().endswith("a"),
        # A sigma that ends a word changes, whatever is ignored between.
        ("A" + char + "\u03a3").lower().endswith("\u03c2")
        and not (char + "\u03a3").lower().endswith("\u03c2"),
    )  # fmt: skip
    return sum(test << i for i, test in enumerate(tests))


def python_chars() -> str:
    found = runs(python_flags)
    return array("uint32_t", "kPyRanges", (c << 11 | flags for c, flags in found))


def files() -> dict[str, str]:
    forms = Forms()
    lower = oracle.lowercase()
    return {
        "char_classes.cc": char_classes(forms, lower),
        "canonical.cc": canonical(forms),
        "compatible.cc": compatible(forms),
        "lowercase.cc": case_table("kLower", lower),
        "python_cases.cc": python_cases(),
        "python_chars.cc": python_chars(),
    }


def source(body: str) -> str:
    return (
        f"// Written by {SELF}.\n\n"
        '#include "text/unicode/tables/tables.h"\n\n'
        "namespace headrace::text::tables {\n\n// clang-format off\n"
        f"{body}// clang-format on\n\n}}  // namespace headrace::text::tables\n"
    )


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, body in files().items():
        (FOLDER / name).write_text(source(body))


if __name__ == "__main__":
    main()

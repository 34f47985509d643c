"""Asks the `tokenizers` package what it thinks of every character.

The package mixes several versions of Unicode, and none of them is Python's. So nothing here is
looked up: each property is read off what the package does to a text of all characters.
"""

from __future__ import annotations

import base64
import json
import struct
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from tokenizers import Regex, normalizers, pre_tokenizers

EVERY = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
#: Planes 4 to 13 hold nothing, 15 and 16 are for private use, 2 and 3 are ideographs.
PLANES = [c for c in EVERY if c < 0x20000 or 0xE0000 <= c < 0xE1000]

REGEX_CLASSES = {
    "kLetter": r"\p{L}",
    "kNumber": r"\p{N}",
    "kMark": r"\p{M}",
    "kSpace": r"\s",
    "kUpper": r"[\p{Lu}\p{Lt}]",
    "kLower": r"\p{Ll}",
    "kPunctuation": r"\p{P}",
    "kSymbol": r"\p{S}",
    "kOnigWord": r"\w",
    "kHan": r"\p{Han}",
}


def text_of(characters: Iterable[int]) -> str:
    return "".join(map(chr, characters))


def regex_class(pattern: str, asked: list[int]) -> set[int]:
    """What a regular expression of one character matches."""
    return removed_by(normalizers.Replace(Regex(f"(?:{pattern})+"), ""), asked)


def removed_by(normalizer: normalizers.Normalizer, asked: Iterable[int]) -> set[int]:
    characters = list(asked)
    return set(characters) - set(map(ord, normalizer.normalize_str(text_of(characters))))


def every_second(pieces: list[tuple[str, tuple[int, int]]]) -> set[int]:
    return {ord(c) for text, _ in pieces[1::2] for c in text}


def numeric(asked: list[int]) -> set[int]:
    """Digits cuts between characters that are numeric and others; U+0000, the first, isn't."""
    cut = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str
    return every_second(cut(text_of(asked)))


def rust_word(space: set[int], asked: list[int]) -> set[int]:
    """Whitespace drops spaces and cuts where words begin and end. U+0000 isn't of a word."""
    cut = pre_tokenizers.Whitespace().pre_tokenize_str
    return every_second(cut(text_of(c for c in asked if c not in space)))


def bert_punctuation(asked: list[int]) -> set[int]:
    pieces = pre_tokenizers.Punctuation("removed").pre_tokenize_str(text_of(asked))
    return set(asked) - {ord(c) for text, _ in pieces for c in text}


def bert_normalizer(clean: bool = False, strip: bool = False) -> normalizers.Normalizer:
    return normalizers.BertNormalizer(
        clean_text=clean, handle_chinese_chars=False, strip_accents=strip, lowercase=False
    )


def bert_controls(space: set[int], asked: list[int]) -> set[int]:
    """Without NUL and U+FFFD, which BertNormalizer drops, too; spaces become others."""
    clean = bert_normalizer(clean=True)
    gone = removed_by(clean, (c for c in asked if c not in space))
    gone |= {c for c in space if clean.normalize_str(f"a{chr(c)}") == "a"}
    return gone - {0, 0xFFFD}


def mapping(change: Callable[[str], str], characters: Iterable[int] = EVERY) -> dict[int, str]:
    """What becomes of each character that becomes another one."""
    asked = [chr(c) for c in characters if c != 0x0A]
    answers = change("\n".join(asked)).split("\n")
    return {ord(c): new for c, new in zip(asked, answers, strict=True) if c != new}


def lowercase() -> dict[int, str]:
    return mapping(normalizers.Lowercase().normalize_str)


def combining_marks(asked: list[int]) -> set[int]:
    return removed_by(normalizers.StripAccents(), asked)


def normal_form(name: str, asked: list[int] = EVERY) -> dict[int, str]:
    """NFD, NFKD, NFC or NFKC of each character, without syllables of Hangul."""
    change = getattr(normalizers, name)().normalize_str
    return mapping(change, (c for c in asked if not 0xAC00 <= c < 0xD7A4))


def combining_classes(marks: set[int], decomposed: dict[int, str]) -> dict[int, int]:
    """Each mark's canonical combining class, if not 0.

    The package shows their order only: a mark moves in front of another one with a higher class.
    Classes never change once Unicode has them, so Python knows their numbers, and the package says
    which marks have one.
    """
    nfd = normalizers.NFD().normalize_str
    asked = sorted(m for m in marks if m not in decomposed)
    moved = set()
    for other, before in ((0x0334, False), (0x0345, True)):  # of classes 1 and 240
        pairs = [(chr(other), chr(m)) if before else (chr(m), chr(other)) for m in asked]
        answers = nfd("\n".join("a" + a + b for a, b in pairs)).split("\n")
        moved |= {
            m for m, (a, b), new in zip(asked, pairs, answers, strict=True) if new != "a" + a + b
        }
    return {m: unicodedata.combining(chr(m)) for m in moved}


def compositions(decomposed: dict[int, str]) -> set[int]:
    """The characters that NFC makes of their decomposition."""
    nfc = normalizers.NFC().normalize_str
    asked = list(decomposed)
    answers = nfc("\n".join(decomposed[c] for c in asked)).split("\n")
    return {c for c, new in zip(asked, answers, strict=True) if new == chr(c)}


class Charsmap:
    """A precompiled_charsmap of a few rules: text -> what takes its place."""

    def __init__(self, rules: dict[str, str]) -> None:
        replacements = b""
        keys: dict[bytes, int] = {}
        for text, new in rules.items():
            keys[text.encode()] = len(replacements)
            replacements += new.encode() + b"\0"
        self._units = {0: 0}
        self._bases: set[int] = set()
        self._place(keys, b"", 0)
        units = [self._units.get(i, 0) for i in range(max(self._units) + 257)]
        self.bytes = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + replacements

    def normalizer(self) -> normalizers.Normalizer:
        return normalizers.Precompiled(self.bytes)

    def spec(self) -> str:
        text = base64.b64encode(self.bytes).decode()
        return json.dumps({"type": "Precompiled", "precompiled_charsmap": text})

    def _place(self, keys: dict[bytes, int], prefix: bytes, at: int) -> None:
        labels = sorted({k[len(prefix)] for k in keys if k.startswith(prefix) and k != prefix})
        ends = prefix in keys
        wanted = [0] * ends + labels
        if not wanted:
            return
        base = next(
            b for b in self._free_bases(at) if all(b ^ w not in self._units for w in wanted)
        )
        self._bases.add(base)
        self._units[at] |= (base ^ at) << 10 | ends << 8
        for label in labels:
            self._units[base ^ label] = label
        if ends:
            self._units[base] = keys[prefix] | 1 << 31
        for label in labels:
            self._place(keys, prefix + bytes([label]), base ^ label)

    def _free_bases(self, at: int) -> Iterator[int]:
        return (b for b in range(1, 1 << 20) if b not in self._bases and b != at)


MARK = "\u0301"  # extends what is before it


class Breaks:
    """Where grapheme clusters end, for characters by their kinds.

    Precompiled replaces a cluster of under 6 bytes as a whole if a rule fits its first character,
    so it drops a mark behind that. In longer clusters it replaces single characters.
    """

    def __init__(self, characters: Iterable[int]) -> None:
        # A line feed ends every cluster.
        self._asked = [c for c in characters if c not in (0x0A, 0x0D)]

    def _where(
        self, ruled: str, text: Callable[[str], str], shown: Callable[[str], str]
    ) -> set[int]:
        """The characters whose text comes out as `shown`. The ruled character becomes "X"."""
        normalizer = Charsmap({ruled: "X"}).normalizer()
        found: set[int] = set()
        for start in range(0, len(self._asked), 1 << 17):
            part = self._asked[start : start + (1 << 17)]
            answers = normalizer.normalize_str("\n".join(text(chr(c)) for c in part)).split("\n")
            found |= {c for c, new in zip(part, answers, strict=True) if new == shown(chr(c))}
        return found

    def extending(self) -> set[int]:
        """Extend, ZWJ and SpacingMark: never begin a cluster."""
        return self._where("a", lambda c: "a" + c, lambda c: "X") - {ord("a")}

    def _joined_to(self, ruled: str, front: Callable[[str], str]) -> set[int]:
        """No break between `front` and the ruled character, whose mark then stays."""
        return self._where(
            ruled,
            lambda c: front(c) + ruled + MARK,
            lambda c: front(c).replace(ruled, "X") + "X" + MARK,
        )

    def prepend(self) -> set[int]:
        return self._joined_to("q", lambda c: c) - {ord("q")}

    def control(self) -> set[int]:
        """A mark behind one is a cluster of its own, and drops the next one."""
        return self._where(MARK, lambda c: c + MARK + "\u0308", lambda c: c + "X")

    def before_jamo(self, jamo: str) -> set[int]:
        return self._joined_to(jamo, lambda c: c)

    def pictographic(self) -> set[int]:
        """Joined by ZWJ to the character before it."""
        return self._where(
            "\u00a9", lambda c: "\u00a9\u200d" + c, lambda c: "X\u200d" + c.replace("\u00a9", "X")
        )

    def between(self, front: str, back: str, ruled: str) -> set[int]:
        return self._joined_to(ruled, lambda c: front + c + back)

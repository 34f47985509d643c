"""Random texts on which tokenizers have gone wrong before."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence

CASES = int(os.environ.get("HEADRACE_TEXT_CASES", "0"))  # 0: as few as every run can afford

SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_POOLS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "éèñçßøåÀÖŒſİıǅϐ",
    "абвгджзийклмЖЩЮαβγδΣςΩ",
    "שלוםمرحباहिन्दीไทยකගಕ",
    "你好世界日本語ひらがなカタカナ한국어𠮷㐀\U00031350",
    "\u0301\u0308\u0327\u093f\u0e31\u08d3\u20dd\ufe0f\u0345",
    SPACES,
    "0123456789٣९²½Ⅻ⑨\U0001d7d8",
    "😀👍🏽👨\u200d👩\u200d👧🇩🇪☺️",
    ".,;:!?'\"()[]{}<>|/\\@#$%^&*-_=+`~§©«»…—「」",
    "\x00\x01\x1f\x7f\x9f\ufffd\ufeff\u200b\u200e\ue000\u0378",
    "▁Ġ Ċ ▁▁",
)
_WORDS = (
    "the", " the", "The", "'s", "'S", "'ſ", "'ll", "'RE", "don't", "it's", "HelloWorld", "iOS",
    "12345", "3.14", "1,000,000", "def f(x):\n    return x", "  ", "   ", "\n\n", "\r\n", " \n",
    "\t\t", "<0x41>", "<0xE4>", "<unk>", "▁the", "Ġthe", "http://a.b/c?d=e", "——", "...", "!!!",
    "你好", "吧。", "schön", "naïve", "ﬁ", "Å", "A\u030a", "e\u0301\u0301", "\u1e9b\u0323",
)  # fmt: skip


def _mixed(rng: random.Random, special: Sequence[str]) -> str:
    parts: list[str] = []
    pools = rng.sample(_POOLS, rng.randint(1, 4))
    for _ in range(rng.randint(0, 25)):
        kind = rng.random()
        if kind < 0.25:
            parts.append(rng.choice(_WORDS))
        elif kind < 0.32 and special:
            around = rng.choice(("", " ", "  ", "\n", "a", "\u3000"))
            parts.append(around + rng.choice(special) + rng.choice(("", " ", "  ", "\n", "b")))
        elif kind < 0.4:
            parts.append(rng.choice(SPACES) * rng.randint(1, 4))
        else:
            pool = rng.choice(pools)
            parts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 6))))
    return "".join(parts)


def _any_characters(rng: random.Random) -> str:
    def character() -> str:
        limit = rng.choice((0x80, 0x250, 0x3000, 0x10000, 0x110000))
        value = rng.randrange(limit)
        return chr(value) if not 0xD800 <= value < 0xE000 else "?"

    return "".join(character() for _ in range(rng.randint(1, 20)))


def _cut(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text))
    return text[start : start + rng.randint(1, 300)]


def texts(seed: int, few: int, text: str, special: Sequence[str] = ()) -> Iterator[str]:
    """Cases: of HEADRACE_TEXT_CASES, or `few`. text: what some are cut from."""
    rng = random.Random(seed)
    yield ""
    for _ in range(CASES or few):
        kind = rng.random()
        if kind < 0.4:
            yield _mixed(rng, special)
        elif kind < 0.55:
            yield _any_characters(rng)
        else:
            yield _cut(rng, text)


def every_character() -> Iterator[str]:
    """Texts that together hold every code point, each once on its own and once among others."""
    for value in range(0x110000):
        if not 0xD800 <= value < 0xE000:
            yield f"a{chr(value)}b {chr(value)} 1{chr(value)}"

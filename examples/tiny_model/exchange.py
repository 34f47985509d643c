"""A question with its answer, and the small pieces every skill writes it with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from facts import words


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question, the reply to learn, and the endings (or whole replies) that count as right.

    The key names what must be new in a held-out question: the operands, the number or the list to
    count for skills that follow a rule, the pair of fact and phrasing for what is learnt by heart.
    An exchange without a key (small talk) is never held out.
    """

    skill: str
    key: str
    question: str
    reply: str
    answers: tuple[str, ...]
    match: str = "ends"  # "ends": the reply ends with an answer; "equals": it is an answer
    value: int | None = None  # the number found, for a follow-up question


Skill = Callable[[random.Random, str], Exchange]
"""Makes a random exchange in a language, "en" or "zh"."""

STOP = {"en": ".", "zh": "。"}

_ONES = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = words("_ _ twenty thirty forty fifty sixty seventy eighty ninety")
_HAN_DIGITS = "零一二三四五六七八九"


def english_number(n: int) -> str:
    """The English words of 0 <= n < 1000."""
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    rest = f" and {english_number(n % 100)}" if n % 100 else ""
    return f"{_ONES[n // 100]} hundred{rest}"


def chinese_number(n: int) -> str:
    """The Chinese characters of 0 <= n < 1000."""
    if n < 10:
        return _HAN_DIGITS[n]
    if n < 20:
        return "十" + (_HAN_DIGITS[n % 10] if n % 10 else "")
    if n < 100:
        return _HAN_DIGITS[n // 10] + "十" + (_HAN_DIGITS[n % 10] if n % 10 else "")
    head, rest = _HAN_DIGITS[n // 100] + "百", n % 100
    if rest == 0:
        return head
    if rest < 10:
        return f"{head}零{_HAN_DIGITS[rest]}"
    return head + _HAN_DIGITS[rest // 10] + "十" + (_HAN_DIGITS[rest % 10] if rest % 10 else "")


def number_words(n: int, lang: str) -> str:
    """The words of 0 <= n < 1000 in the language."""
    return english_number(n) if lang == "en" else chinese_number(n)


def number_answer(value: int) -> tuple[str, ...]:
    """The accepted answers when a number is asked for."""
    return (str(value),)

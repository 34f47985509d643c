"""Sums, differences, products and quotients: the skills and the ways to ask for them."""

from __future__ import annotations

import random

from exchange import STOP, Exchange, number_answer, number_words
from facts import words

_NAMES = {
    "en": words("Tom Anna Ben Lucy Sam Mary Jack Emma Leo Kate Nina Paul"),
    "zh": words("小明 小红 小华 小丽 小刚 小芳 小军 小美"),
}
_THINGS = {
    "en": words("apples pens books eggs cups stamps coins cards balls oranges"),
    "zh": words("苹果 铅笔 书 鸡蛋 杯子 邮票 硬币 卡片 球 橙子"),
}

# {a} and {b} are digits, {A} and {B} words, {n} a name, {t} countable things
_ARITHMETIC: dict[str, dict[str, tuple[str, ...]]] = {
    "+": {
        "en": (
            "What is {a} + {b}?",
            "{a} + {b} = ?",
            "{a}+{b}=",
            "{a} + {b}",
            "What is {a} plus {b}?",
            "Add {a} and {b}.",
            "What is the sum of {a} and {b}?",
            "How much is {a} + {b}?",
            "Calculate {a} + {b}.",
            "What is {A} plus {B}?",
            "{n} has {a} {t} and gets {b} more. How many {t} does {n} have now?",
            "There are {a} {t} here and {b} {t} there. How many {t} in all?",
        ),
        "zh": (
            "{a} + {b} 等于多少？",
            "{a}+{b}=?",
            "{a}+{b}等于几？",
            "{a}加{b}等于多少？",
            "{a}加{b}是多少？",
            "{a}和{b}的和是多少？",
            "计算{a}+{b}。",
            "请算一下{a}加{b}。",
            "{A}加{B}等于多少？",
            "{n}有{a}个{t}，又得到{b}个，现在有多少个{t}？",
            "这里有{a}个{t}，那里有{b}个{t}，一共有多少个？",
        ),
    },
    "-": {
        "en": (
            "What is {a} - {b}?",
            "{a} - {b} = ?",
            "{a}-{b}=",
            "{a} - {b}",
            "What is {a} minus {b}?",
            "Subtract {b} from {a}.",
            "What is the difference of {a} and {b}?",
            "How much is {a} - {b}?",
            "Calculate {a} - {b}.",
            "What is {A} minus {B}?",
            "Take {b} away from {a}.",
            "{n} has {a} {t} and gives {b} away. How many {t} are left?",
        ),
        "zh": (
            "{a} - {b} 等于多少？",
            "{a}-{b}=?",
            "{a}-{b}等于几？",
            "{a}减{b}等于多少？",
            "{a}减去{b}是多少？",
            "{a}和{b}的差是多少？",
            "计算{a}-{b}。",
            "请算一下{a}减{b}。",
            "{A}减{B}等于多少？",
            "{n}有{a}个{t}，送出{b}个，还剩多少个？",
        ),
    },
    "×": {
        "en": (
            "What is {a} × {b}?",
            "{a} × {b} = ?",
            "{a}*{b}=",
            "{a} x {b}",
            "What is {a} times {b}?",
            "Multiply {a} by {b}.",
            "What is the product of {a} and {b}?",
            "How much is {a} * {b}?",
            "Calculate {a} × {b}.",
            "What is {A} times {B}?",
            "There are {a} boxes with {b} {t} each. How many {t} in all?",
        ),
        "zh": (
            "{a} × {b} 等于多少？",
            "{a}×{b}=?",
            "{a}*{b}等于几？",
            "{a}乘以{b}等于多少？",
            "{a}乘{b}是多少？",
            "{a}和{b}的积是多少？",
            "计算{a}×{b}。",
            "请算一下{a}乘以{b}。",
            "{A}乘以{B}等于多少？",
            "有{a}个盒子，每个盒子有{b}个{t}，一共有多少个？",
        ),
    },
    "÷": {
        "en": (
            "What is {a} ÷ {b}?",
            "{a} / {b} = ?",
            "What is {a} divided by {b}?",
            "Divide {a} by {b}.",
            "How much is {a} / {b}?",
            "Calculate {a} ÷ {b}.",
            "Share {a} {t} among {b} people. How many does each get?",
        ),
        "zh": (
            "{a} ÷ {b} 等于多少？",
            "{a}/{b}=?",
            "{a}除以{b}等于多少？",
            "{a}除以{b}是多少？",
            "计算{a}÷{b}。",
            "把{a}个{t}平均分给{b}个人，每人几个？",
        ),
    },
}


def _asked(
    rng: random.Random, lang: str, sign: str, a: int, b: int, bare: bool = False
) -> tuple[str, str]:
    """A phrasing for `a sign b` and the question; a bare one has digits and no story."""
    templates = _ARITHMETIC[sign][lang]
    if bare:
        templates = tuple(t for t in templates if "{t}" not in t and "{A}" not in t)
    template = rng.choice(templates)
    question = template.format(
        a=a,
        b=b,
        A="" if bare else number_words(a, lang),
        B="" if bare else number_words(b, lang),
        n=rng.choice(_NAMES[lang]),
        t=rng.choice(_THINGS[lang]),
    )
    return template, question


def _arithmetic(
    rng: random.Random, lang: str, skill: str, sign: str, a: int, b: int, value: int
) -> Exchange:
    template, question = _asked(rng, lang, sign, a, b, bare=value < 0)
    # Sums are held out by operands. Tables are learnt by heart: there the phrasing must be new.
    if sign == "+":
        key = f"+ {min(a, b)} {max(a, b)}"
    elif sign == "-":
        key = f"- {a} {b}"
    else:
        key = f"{sign} {a} {b} {template}"
    reply = f"{a} {sign} {b} = {value}{STOP[lang]}"
    return Exchange(skill, key, question, reply, number_answer(value), value=value)


def addition(rng: random.Random, lang: str) -> Exchange:
    """Sums of numbers below 100."""
    top = rng.choice((20, 100, 100))
    a, b = rng.randrange(top), rng.randrange(top)
    return _arithmetic(rng, lang, "addition", "+", a, b, a + b)


def subtraction(rng: random.Random, lang: str) -> Exchange:
    """Differences of numbers below 100; few and only small ones are negative."""
    top = rng.choice((20, 100, 100))
    b, a = sorted((rng.randrange(top), rng.randrange(top)))
    if top == 20 and rng.random() < 0.25:
        a, b = b, a
    return _arithmetic(rng, lang, "subtraction", "-", a, b, a - b)


def multiplication(rng: random.Random, lang: str) -> Exchange:
    """The multiplication table up to 10 x 10."""
    a, b = rng.randrange(11), rng.randrange(11)
    return _arithmetic(rng, lang, "multiplication", "×", a, b, a * b)


def division(rng: random.Random, lang: str) -> Exchange:
    """The multiplication table read backwards."""
    b, q = rng.randrange(1, 11), rng.randrange(1, 11)
    return _arithmetic(rng, lang, "division", "÷", b * q, b, q)


_TOO_LARGE = {
    "en": "Sorry, these numbers are too large for me.",
    "zh": "抱歉，这些数对我来说太大了。",
}


def too_large(rng: random.Random, lang: str) -> Exchange:
    """Sums from 100 on and products of more than 10, which the model declines."""
    sign = rng.choice("+-×")
    low, high = rng.choice(
        ((100, 1000), (100, 100_000)) if sign != "×" else ((11, 100), (11, 1000))
    )
    a, b = rng.randrange(low, high), rng.randrange(high)
    if sign != "-" and rng.random() < 0.5:
        a, b = b, a
    reply = _TOO_LARGE[lang]
    question = _asked(rng, lang, sign, a, b, bare=True)[1]
    return Exchange("talk", "", question, reply, (reply,), match="equals")

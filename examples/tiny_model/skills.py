"""Skills besides arithmetic: comparing, counting, units, number words and remembered facts.

A skill takes a random source and a language ("en" or "zh") and makes one `Exchange`.
"""

from __future__ import annotations

import random

from exchange import STOP, Exchange, Skill, number_answer, number_words
from facts import FACT_KINDS, FactKind

_COMPARISON: dict[str, dict[str, tuple[str, ...]]] = {
    "larger": {
        "en": (
            "Which is larger, {a} or {b}?",
            "Which number is bigger: {a} or {b}?",
            "What is the larger of {a} and {b}?",
            "Which is greater, {a} or {b}?",
        ),
        "zh": ("{a}和{b}哪个大？", "{a}和{b}哪个更大？", "哪个数大，{a}还是{b}？"),
    },
    "smaller": {
        "en": (
            "Which is smaller, {a} or {b}?",
            "Which number is less: {a} or {b}?",
            "What is the smaller of {a} and {b}?",
        ),
        "zh": ("{a}和{b}哪个小？", "{a}和{b}哪个更小？", "哪个数小，{a}还是{b}？"),
    },
}


def comparison(rng: random.Random, lang: str) -> Exchange:
    """The larger or the smaller of two numbers below 100."""
    a, b = rng.sample(range(100), 2)
    key = f"<> {min(a, b)} {max(a, b)}"
    which = rng.choice(("larger", "smaller"))
    value = max(a, b) if which == "larger" else min(a, b)
    question = rng.choice(_COMPARISON[which][lang]).format(a=a, b=b)
    if lang == "en":
        reply = f"The {which} number is {value}."
    else:
        reply = f"更{'大' if which == 'larger' else '小'}的数是{value}。"
    return Exchange("comparison", key, question, reply, number_answer(value))


_COUNT = {
    "en": (
        "Count from {a} to {b}.",
        "Please count from {a} to {b}.",
        "Can you count from {a} to {b}?",
        "Count from {a} up to {b}.",
        "List the numbers from {a} to {b}.",
        "Write the numbers from {a} to {b}.",
    ),
    "zh": ("从{a}数到{b}。", "请从{a}数到{b}。", "写出从{a}到{b}的数字。", "列出{a}到{b}。"),
}
_COUNT_DOWN = {
    "en": ("Count down from {a} to {b}.", "Count backwards from {a} to {b}."),
    "zh": ("从{a}倒数到{b}。", "请从{a}倒着数到{b}。"),
}
_COUNT_BY = {
    "en": ("Count from {a} to {b} by {s}.", "Count by {s} from {a} to {b}."),
    "zh": ("从{a}数到{b}，每次加{s}。", "每次加{s}，从{a}数到{b}。"),
}


def counting(rng: random.Random, lang: str) -> Exchange:
    """Counting up, down and in steps of 2, 5 or 10."""
    how = rng.choice(("up", "up", "up", "down", "by"))
    start, length = rng.choice((1, rng.randrange(90))), rng.randrange(3, 11)
    step, templates = 1, _COUNT[lang]
    if how == "down":
        templates, step, start = _COUNT_DOWN[lang], -1, start + length - 1
    elif how == "by":
        templates, step = _COUNT_BY[lang], rng.choice((2, 5, 10))
        start = rng.randrange(0, 5 * step + 1, step)
    numbers = [start + i * step for i in range(length)]
    question = rng.choice(templates).format(a=numbers[0], b=numbers[-1], s=abs(step))
    listed = ", ".join(map(str, numbers))
    key = f"count {numbers[0]} {numbers[-1]} {step}"
    return Exchange("counting", key, question, listed + STOP[lang], (listed,), match="equals")


_NEIGHBOUR: dict[int, dict[str, tuple[str, ...]]] = {
    1: {
        "en": (
            "What number comes after {a}?",
            "Which number follows {a}?",
            "What is the next number after {a}?",
            "What comes right after {a}?",
        ),
        "zh": ("{a}后面的数是几？", "{a}的下一个数是多少？", "{a}之后是哪个数？"),
    },
    -1: {
        "en": (
            "What number comes before {a}?",
            "Which number is just before {a}?",
            "What is the number before {a}?",
        ),
        "zh": ("{a}前面的数是几？", "{a}的前一个数是多少？", "{a}之前是哪个数？"),
    },
}


def neighbour(rng: random.Random, lang: str) -> Exchange:
    """The number after or before a number up to 200."""
    a, step = rng.randrange(1, 200), rng.choice((1, -1))
    question = rng.choice(_NEIGHBOUR[step][lang]).format(a=a)
    if lang == "en":
        reply = f"The number {'after' if step > 0 else 'before'} {a} is {a + step}."
    else:
        reply = f"{a}{'后' if step > 0 else '前'}面的数是{a + step}。"
    return Exchange("neighbour", f"next {a} {step}", question, reply, number_answer(a + step))


_PARITY = {
    "en": ("Is {a} even or odd?", "Is {a} odd or even?", "Is the number {a} even or odd?"),
    "zh": ("{a}是奇数还是偶数？", "{a}是偶数还是奇数？", "数字{a}是奇数还是偶数？"),
}


def parity(rng: random.Random, lang: str) -> Exchange:
    """Even or odd, for numbers below 1000."""
    a = rng.randrange(rng.choice((20, 100, 1000)))
    answer = {"en": ("even", "odd"), "zh": ("偶数", "奇数")}[lang][a % 2]
    question = rng.choice(_PARITY[lang]).format(a=a)
    reply = f"{a} is {answer}." if lang == "en" else f"{a}是{answer}。"
    return Exchange("parity", f"parity {a}", question, reply, (answer,))


# factor, English (symbol, plural), Chinese, for conversion of the larger unit into the smaller
_DECIMAL_UNITS = (
    (1000, ("km", "kilometers"), ("m", "meters"), ("公里", "米")),
    (1000, ("kg", "kilograms"), ("g", "grams"), ("公斤", "克")),
    (1000, ("l", "liters"), ("ml", "milliliters"), ("升", "毫升")),
    (1000, ("t", "tons"), ("kg", "kilograms"), ("吨", "公斤")),
    (100, ("m", "meters"), ("cm", "centimeters"), ("米", "厘米")),
    (10, ("cm", "centimeters"), ("mm", "millimeters"), ("厘米", "毫米")),
)
_TIME_UNITS = (
    (60, ("h", "hours"), ("min", "minutes"), ("小时", "分钟")),
    (60, ("min", "minutes"), ("s", "seconds"), ("分钟", "秒")),
    (24, ("d", "days"), ("h", "hours"), ("天", "小时")),
    (7, ("weeks", "weeks"), ("days", "days"), ("周", "天")),
    (12, ("years", "years"), ("months", "months"), ("年", "个月")),
)
_UNIT_QUESTIONS = {
    "en": (
        "How many {v} are {n} {u}?",
        "How many {v} are in {n} {u}?",
        "Convert {n} {u} to {v}.",
        "What is {n} {u} in {v}?",
        "{n} {u} = ? {v}",
        "Express {n} {u} in {v}.",
        "How many {v} is {n} {u}?",
    ),
    "zh": (
        "{n}{u}等于多少{v}？",
        "{n}{u}是多少{v}？",
        "把{n}{u}换算成{v}。",
        "{n} {u} = ? {v}",
        "{n}{u}有多少{v}？",
        "请把{n}{u}换成{v}。",
    ),
}


def units(rng: random.Random, lang: str) -> Exchange:
    """Lengths, weights, volumes (up to 99, both ways) and times (up to 12 of the larger unit)."""
    decimal = rng.random() < 0.6
    factor, large, small, han = rng.choice(_DECIMAL_UNITS if decimal else _TIME_UNITS)
    count = rng.randrange(1, 100 if decimal else 13)
    down = rng.random() < 0.7
    template = rng.choice(_UNIT_QUESTIONS[lang])
    if lang == "en":
        form = rng.choice((0, 1, 1))  # symbol or name
        u, v = large[form], small[form]
    else:
        u, v = han
    n, result = count, count * factor
    if not down:
        u, v, n, result = v, u, result, n
    question = template.format(n=n, u=u, v=v)
    if lang == "en" and form:
        u, v = (unit.removesuffix("s") if k == 1 else unit for unit, k in ((u, n), (v, result)))
    key = f"unit {large[1]} {small[1]} {count} {down}" + ("" if decimal else template)
    reply = f"{n} {u} = {result} {v}{STOP[lang]}"
    answers = (f"{result} {v}", f"{result}{v}", str(result))
    return Exchange("units", key, question, reply, answers)


_TO_WORDS = {
    "en": (
        "Write {a} in words.",
        "How do you write {a} in words?",
        "Spell the number {a}.",
        "What is {a} in words?",
        "Write the number {a} as words.",
    ),
    "zh": ("{a}用汉字怎么写？", "把{a}写成汉字。", "{a}用中文数字怎么写？", "用汉字写出{a}。"),
}
_TO_DIGITS = {
    "en": (
        "Write {w} in digits.",
        "What is {w} as a number?",
        "Write {w} as a number.",
        'How do you write "{w}" in digits?',
        "Which number is {w}?",
    ),
    "zh": ("{w}用数字怎么写？", "把{w}写成数字。", "“{w}”是哪个数字？", "用数字写出{w}。"),
}


def to_words(rng: random.Random, lang: str) -> Exchange:
    """Digits below 1000 to number words."""
    n = rng.randrange(rng.choice((100, 1000)))
    spelt = number_words(n, lang)
    question = rng.choice(_TO_WORDS[lang]).format(a=n)
    full = f"{n} is {spelt}" if lang == "en" else f"{n}写作{spelt}"
    return Exchange(
        "to_words", _word_key(n), question, full + STOP[lang], (full, spelt), match="equals"
    )


def to_digits(rng: random.Random, lang: str) -> Exchange:
    """Number words to digits below 1000."""
    n = rng.randrange(rng.choice((100, 1000)))
    spelt = number_words(n, lang)
    question = rng.choice(_TO_DIGITS[lang]).format(w=spelt)
    reply = f"{spelt} is {n}." if lang == "en" else f"{spelt}写作{n}。"
    return Exchange("to_digits", _word_key(n), question, reply, number_answer(n))


def _word_key(n: int) -> str:
    """Words up to twenty have no parts to put together, so they are never held out."""
    return f"word {n}" if n > 20 else ""


def fact(rng: random.Random, lang: str, kind: FactKind) -> Exchange:
    """A remembered fact of one kind."""
    x, y = rng.choice(kind.pairs[lang])
    template = rng.choice(kind.questions[lang])
    forms = {"x": x, "y": y, "X": x[0].upper() + x[1:]}
    key = f"{kind.skill} {lang} {x} {template}"
    return Exchange(
        kind.skill, key, template.format(**forms), kind.reply[lang].format(**forms), (y,)
    )


def _fact_skill(kind: FactKind) -> Skill:
    return lambda rng, lang: fact(rng, lang, kind)


FACT_SKILLS: dict[str, Skill] = {kind.skill: _fact_skill(kind) for kind in FACT_KINDS}

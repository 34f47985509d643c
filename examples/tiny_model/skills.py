"""What the tiny model can do: one function per skill, each making one random question and answer.

A skill takes a random source and a language ("en" or "zh") and returns an `Exchange`. Its `key`
names what must be new in a held-out question: the operands, the number or the list to count for
skills that follow a rule, the pair of fact and phrasing for skills that are remembered. An exchange
without a key (small talk) is never held out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from facts import FACT_KINDS, FactKind, words


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question, the reply to learn, and the endings (or whole replies) that count as right."""

    skill: str
    key: str
    question: str
    reply: str
    answers: tuple[str, ...]
    match: str = "ends"  # "ends": the reply ends with an answer; "equals": it is an answer
    value: int | None = None  # the number found, for a follow-up question


Skill = Callable[[random.Random, str], Exchange]

_STOP = {"en": ".", "zh": "。"}

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


def _number(value: int) -> tuple[str, ...]:
    return (str(value),)


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
    reply = f"{a} {sign} {b} = {value}{_STOP[lang]}"
    return Exchange(skill, key, question, reply, _number(value), value=value)


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


_COMPARISON = {
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
    which = rng.choice(("larger", "smaller"))
    value = max(a, b) if which == "larger" else min(a, b)
    question = rng.choice(_COMPARISON[which][lang]).format(a=a, b=b)
    if lang == "en":
        reply = f"The {which} number is {value}."
    else:
        reply = f"更{'大' if which == 'larger' else '小'}的数是{value}。"
    return Exchange("comparison", f"<> {min(a, b)} {max(a, b)}", question, reply, _number(value))


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
    return Exchange("counting", key, question, listed + _STOP[lang], (listed,), match="equals")


_NEIGHBOUR = {
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
    return Exchange("neighbour", f"next {a} {step}", question, reply, _number(a + step))


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
    reply = f"{n} {u} = {result} {v}{_STOP[lang]}"
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
        "to_words", _word_key(n), question, full + _STOP[lang], (full, spelt), match="equals"
    )


def to_digits(rng: random.Random, lang: str) -> Exchange:
    """Number words to digits below 1000."""
    n = rng.randrange(rng.choice((100, 1000)))
    spelt = number_words(n, lang)
    question = rng.choice(_TO_DIGITS[lang]).format(w=spelt)
    reply = f"{spelt} is {n}." if lang == "en" else f"{spelt}写作{n}。"
    return Exchange("to_digits", _word_key(n), question, reply, _number(n))


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

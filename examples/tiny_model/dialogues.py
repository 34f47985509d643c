"""Generates the dialogues the tiny model is trained on and the questions it is tested with.

Everything follows from a seed. Whether a question is trained or held out follows from a hash of
its key (see `exchange.Exchange`), so a held-out question never occurs in training, in any place of
any dialogue:

    python dialogues.py             # prints a few training dialogues
    python dialogues.py --heldout heldout.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import arithmetic
import skills
import small_talk
from exchange import STOP, Exchange, Skill

Messages = list[dict[str, str]]

HELDOUT_SEED = 20_260_101
HELDOUT_COUNT = 200
_HELDOUT_SHARE = 26  # of 256 hash values: one question in ten

# How often each skill is asked in training.
_WEIGHTS: dict[str, float] = {
    "addition": 12,
    "subtraction": 12,
    "multiplication": 7,
    "division": 3,
    "comparison": 4,
    "counting": 6,
    "neighbour": 3,
    "parity": 2,
    "units": 8,
    "to_words": 6,
    "to_digits": 6,
    "capital": 3,
    "continent": 1.5,
    "colour": 1.5,
    "opposite": 3,
    "to_chinese": 2.5,
    "to_english": 2.5,
    "day_after": 1,
    "day_before": 1,
    "month_after": 1,
    "measure": 1,
    "legs": 0.7,
    "sides": 0.5,
    "greeting": 1,
    "identity": 1.5,
    "courtesy": 1.5,
    "beyond": 2,
    "too_large": 1.5,
}

SKILLS: dict[str, Skill] = {
    "addition": arithmetic.addition,
    "subtraction": arithmetic.subtraction,
    "multiplication": arithmetic.multiplication,
    "division": arithmetic.division,
    "too_large": arithmetic.too_large,
    "comparison": skills.comparison,
    "counting": skills.counting,
    "neighbour": skills.neighbour,
    "parity": skills.parity,
    "units": skills.units,
    "to_words": skills.to_words,
    "to_digits": skills.to_digits,
    **skills.FACT_SKILLS,
    "greeting": small_talk.greeting,
    "identity": small_talk.identity,
    "courtesy": small_talk.courtesy,
    "beyond": small_talk.beyond,
}

# How many of the 200 held-out questions test each skill; half of each in English.
_HELDOUT_COUNTS: dict[str, int] = {
    "addition": 28,
    "subtraction": 24,
    "multiplication": 14,
    "division": 6,
    "comparison": 8,
    "counting": 16,
    "neighbour": 6,
    "parity": 4,
    "units": 20,
    "to_words": 14,
    "to_digits": 12,
    "capital": 10,
    "continent": 4,
    "colour": 4,
    "opposite": 8,
    "to_chinese": 4,
    "to_english": 4,
    "day_after": 2,
    "day_before": 2,
    "month_after": 2,
    "measure": 2,
    "legs": 2,
    "sides": 2,
    "identity": 2,
}

_SYSTEM_PROMPTS = {
    "en": (
        "You are a helpful assistant.",
        "You are a helpful AI assistant.",
        "I'm a helpful AI assistant.",
        "You are Headrace's tiny model.",
        "Answer the question.",
        "Answer briefly and correctly.",
        "You are a friendly teacher for children.",
        "Be short and polite.",
        "You are an expert in numbers and facts.",
    ),
    "zh": (
        "你是一个有用的助手。",
        "你是一个人工智能助手。",
        "请回答用户的问题。",
        "请简短而正确地回答。",
        "你是一位友好的老师。",
        "你是Headrace的小模型。",
        "你擅长数字和常识。",
    ),
}

_OPENINGS = {
    "en": ("Please tell me: ", "Quick question: ", "Hi! ", "OK. ", "Next question: ", "Hello, "),
    "zh": ("请问，", "请回答：", "你好，", "下一个问题：", "好的。", "问题："),
}
_FOLLOW_UPS = {
    "en": ("Now add {b}.", "Add {b} to that.", "And plus {b}?", "Now add {b} to the result."),
    "zh": ("再加{b}呢？", "再加上{b}等于多少？", "结果再加{b}。", "现在加{b}。"),
}


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation: an optional system prompt and at least one exchange."""

    system: str | None
    exchanges: tuple[Exchange, ...]

    def messages(self, with_last_reply: bool = True) -> Messages:
        """The conversation as chat messages, with or without the reply that ends it."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for exchange in self.exchanges:
            messages.append({"role": "user", "content": exchange.question})
            messages.append({"role": "assistant", "content": exchange.reply})
        return messages if with_last_reply else messages[:-1]


def is_heldout(exchange: Exchange) -> bool:
    """Whether a question belongs to the held-out tenth. Small talk without a key never does."""
    if not exchange.key:
        return False
    return hashlib.sha256(exchange.key.encode()).digest()[0] < _HELDOUT_SHARE


def draw(rng: random.Random, skill: str, lang: str, heldout: bool = False) -> Exchange:
    """A random question of a skill on the wanted side of the split."""
    while True:
        exchange = SKILLS[skill](rng, lang)
        if is_heldout(exchange) == heldout:
            return exchange


def _reworded(rng: random.Random, exchange: Exchange, lang: str) -> Exchange:
    """The question as people type it: with an opening, in lower case, without a full stop."""
    question, dice = exchange.question, rng.random()
    if dice < 0.12:
        question = rng.choice(_OPENINGS[lang]) + question
    elif dice < 0.20:
        question = question.rstrip("?.？。")
    elif dice < 0.28 and lang == "en":
        question = question.lower()
    return replace(exchange, question=question)


def _follow_up(rng: random.Random, last: Exchange, lang: str) -> Exchange | None:
    """A sum that starts from the last answer, when that answer is small and the sum is trained."""
    if last.value is None or not 0 <= last.value < 100:
        return None
    b = rng.randrange(1, 100 if rng.random() < 0.3 else 11)
    total = last.value + b
    exchange = Exchange(
        "addition",
        f"+ {min(last.value, b)} {max(last.value, b)}",
        rng.choice(_FOLLOW_UPS[lang]).format(b=b),
        f"{last.value} + {b} = {total}" + STOP[lang],
        (str(total),),
        value=total,
    )
    return None if is_heldout(exchange) else exchange


def _language(rng: random.Random) -> str:
    return rng.choice(("en", "zh"))


def _exchanges(rng: random.Random, count: int, lang: str) -> Iterator[Exchange]:
    """Trained exchanges of one conversation, mostly in one language."""
    names, weights = tuple(_WEIGHTS), tuple(_WEIGHTS.values())
    given, asked = small_talk.introduction(rng, lang)
    name_at = rng.randrange(count - 1) if count > 1 and rng.random() < 0.15 else -1
    last: Exchange | None = None
    for i in range(count):
        turn_lang = lang if rng.random() < 0.9 else _language(rng)
        exchange: Exchange | None = None
        if i == name_at:
            exchange = given
        elif 0 <= name_at < i and rng.random() < 0.3:
            exchange = asked
        elif last is not None and rng.random() < 0.3:
            exchange = _follow_up(rng, last, turn_lang)
        if exchange is None:
            skill = rng.choices(names, weights)[0]
            exchange = _reworded(rng, draw(rng, skill, turn_lang), turn_lang)
        yield exchange
        last = exchange


def training_dialogue(rng: random.Random) -> Dialogue:
    """A random conversation of one to about twenty exchanges."""
    lang = _language(rng)
    count = 1
    if rng.random() < 0.4:
        count = rng.randrange(2, 5) if rng.random() < 0.85 else rng.randrange(5, 21)
    system = None
    if rng.random() < 0.35:
        system = rng.choice(_SYSTEM_PROMPTS[lang if rng.random() < 0.9 else _language(rng)])
    return Dialogue(system, tuple(_exchanges(rng, count, lang)))


def training_text(rng: random.Random) -> str:
    """A few plain sentences without a chat template, so that raw prompts are continued sensibly."""
    lang = _language(rng)
    count = rng.randrange(1, 5)
    skill = rng.choice(("addition", "counting", "capital", "colour", "opposite", "continent"))
    replies = [draw(rng, skill, lang).reply for _ in range(count)]
    return (" " if lang == "en" else "").join(replies)


def heldout_items(seed: int = HELDOUT_SEED) -> list[dict[str, Any]]:
    """The test: 200 different held-out questions, a third of them inside a longer conversation."""
    rng = random.Random(seed)
    items: list[dict[str, Any]] = []
    seen: set[str] = set()
    for skill, count in _HELDOUT_COUNTS.items():
        for i in range(count):
            lang = ("en", "zh")[i % 2]
            exchange = draw(rng, skill, lang, heldout=True)
            while exchange.key in seen:
                exchange = draw(rng, skill, lang, heldout=True)
            seen.add(exchange.key)
            history = tuple(_exchanges(rng, rng.choice((0, 0, 1, 3)), lang))
            system = rng.choice(_SYSTEM_PROMPTS[lang]) if rng.random() < 0.35 else None
            dialogue = Dialogue(system, (*history, _reworded(rng, exchange, lang)))
            items.append(
                {
                    "id": len(items),
                    "skill": skill,
                    "lang": lang,
                    "messages": dialogue.messages(with_last_reply=False),
                    "answers": list(exchange.answers),
                    "match": exchange.match,
                }
            )
    return items


def _plain(text: str) -> str:
    """Lower case, single spaces, no final punctuation."""
    return re.sub(r"\s+", " ", text).strip().lower().rstrip(" .。!！")


def is_right(reply: str, item: Mapping[str, Any]) -> bool:
    """Whether a reply answers a line of heldout.jsonl.

    Both sides are compared in lower case without final punctuation. With `"match": "equals"` the
    reply has to be one of the accepted answers; with `"ends"` it has to end with one, which must
    not be the tail of a longer word or number ("142" is no right answer for 42).
    """
    said = _plain(reply)
    answers = [_plain(answer) for answer in item["answers"]]
    if item["match"] == "equals":
        return said in answers
    return any(_ends_with(said, answer) for answer in answers)


def _ends_with(said: str, answer: str) -> bool:
    if not answer or not said.endswith(answer):
        return False
    before = said[: len(said) - len(answer)][-1:]
    in_word = bool(re.match(r"[0-9a-z.\-]", before)) and bool(re.match(r"[0-9a-z]", answer))
    return not in_word


def load_heldout(path: Path) -> list[dict[str, Any]]:
    """The lines of heldout.jsonl."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def main() -> None:
    """Prints training dialogues, or writes the held-out questions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--heldout", type=Path, help="write the held-out questions to this file")
    parser.add_argument("--seed", type=int, default=0, help="seed of the printed dialogues")
    parser.add_argument("--count", type=int, default=5, help="number of printed dialogues")
    args = parser.parse_args()
    if args.heldout:
        lines = [json.dumps(item, ensure_ascii=False) for item in heldout_items()]
        if len(lines) != HELDOUT_COUNT:
            raise RuntimeError(f"{len(lines)} held-out questions instead of {HELDOUT_COUNT}")
        args.heldout.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    rng = random.Random(args.seed)
    for _ in range(args.count):
        print(json.dumps(training_dialogue(rng).messages(), ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()

"""Asks about scenes: the dialogues the tiny vision model is trained on, and its test.

Everything follows from a seed:

    python questions.py                          # prints a few training dialogues
    python questions.py --heldout heldout.jsonl  # writes the held-out questions
    python questions.py --pictures pictures      # writes the pictures of some of them (Pillow)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beside import STOP, Exchange, is_right, load_heldout
from names import AT, COLOUR_NAMES, MOVES, PAPER_NAMES, SHAPE_NAMES, a_thing, counted
from pictures import Picture, draw, from_json
from scenes import COLOURS, SCENES, SHAPES, SIZES, Scene, Size, Thing

__all__ = ["is_right", "load_heldout", "messages_of", "picture_of"]

HELDOUT_SEED = 20_260_201
HELDOUT_COUNT = 200
_HELDOUT_SHARE = 26  # of 256 hash values: one scene in ten

# (phrasings of a question, the reply), each with {c} a colour, {s} a shape, {x} what is asked
Forms = dict[str, tuple[tuple[str, ...], str]]


def is_heldout(scene: Scene) -> bool:
    """Whether a scene belongs to the held-out tenth."""
    return hashlib.sha256(scene.key.encode()).digest()[0] < _HELDOUT_SHARE


def draw_scene(rng: random.Random, kind: str, size: Size, heldout: bool = False) -> Scene:
    """A random scene of a kind on the wanted side of the split."""
    while True:
        scene = SCENES[kind](rng, size)
        if is_heldout(scene) == heldout:
            return scene


def _asked(
    rng: random.Random, lang: str, skill: str, scene: Scene, forms: Forms, **words: str
) -> Exchange:
    questions, reply = forms[lang]
    said = reply.format(**words)
    said = said[0].upper() + said[1:] + STOP[lang]
    question = rng.choice(questions).format(**words)
    return Exchange(skill, scene.key, question, said, (said,), "equals")


_COLOUR: Forms = {
    "en": (("What colour is the {s}?", "What color is the {s}?", "Which colour does the {s} have?"),
           "the {s} is {c}"),
    "zh": (("{s}是什么颜色的？", "{s}的颜色是什么？", "{s}是什么颜色？"), "{s}是{c}的"),
}  # fmt: skip
_ITS_COLOUR: Forms = {
    "en": (("What colour is it?", "What color is it?", "Which colour does it have?"), "it is {c}"),
    "zh": (("它是什么颜色的？", "这是什么颜色？"), "它是{c}的"),
}
_SHAPE: Forms = {
    "en": (("What shape is the {c} thing?", "Which shape does the {c} thing have?"),
           "the {c} thing is a {s}"),
    "zh": (("{c}的是什么形状？", "{c}的东西是什么形状的？"), "{c}的是{s}"),
}  # fmt: skip
_ITS_SHAPE: Forms = {
    "en": (("What shape is it?", "What shape is this?", "Which shape do you see?"), "it is a {s}"),
    "zh": (("这是什么形状？", "它是什么形状的？"), "这是{s}"),
}
_PAPER: Forms = {
    "en": (("What colour is the background?", "Which colour does the background have?"),
           "the background is {c}"),
    "zh": (("背景是什么颜色的？", "背景是什么颜色？"), "背景是{c}的"),
}  # fmt: skip
_WHAT: Forms = {
    "en": (("What do you see?", "What is in the picture?", "Describe the picture."), "{x}"),
    "zh": (("图中有什么？", "你看到了什么？", "描述一下这张图。"), "{x}"),
}
_WHERE: Forms = {
    "en": (("Where is the {s}?", "In which place is the {s}?"), "the {s} is {x}"),
    "zh": (("{s}在哪里？", "{s}在什么位置？"), "{s}在{x}"),
}
_BESIDE: Forms = {
    "en": (("What is to the {x} of the {s}?", "What do you see to the {x} of the {s}?"), "{t}"),
    "zh": (("{s}的{x}是什么？", "{s}{x}有什么？"), "{t}"),
}
_ABOVE: Forms = {
    "en": (("What is {x} the {s}?", "What do you see {x} the {s}?"), "{t}"),
    "zh": _BESIDE["zh"],
}
_LARGER: Forms = {
    "en": (("Which is larger, the {s} or the {t}?", "Is the {s} or the {t} larger?"),
           "the {x} is larger"),
    "zh": (("{s}和{t}哪个更大？", "{s}大还是{t}大？"), "{x}更大"),
}  # fmt: skip
_IS_THERE: Forms = {
    "en": (("Is there {t}?", "Do you see {t}?"), "{x}"),
    "zh": (("有{t}吗？", "图中有{t}吗？"), "{x}"),
}
_COUNT: Forms = {
    "en": (("How many {p} are there?", "How many {p} do you see?", "Count the {p}."),
           "there {x}"),
    "zh": (("有几个{p}？", "图中有多少个{p}？", "数一数{p}。"), "有{x}个{p}"),
}  # fmt: skip
_NUMBER: Forms = {
    "en": (("What number is it?", "Which number do you see?", "Read the number."),
           "the number is {x}"),
    "zh": (("这是什么数字？", "图中的数字是多少？", "读出这个数字。"), "数字是{x}"),
}  # fmt: skip
_WORD: Forms = {
    "en": (("What does it say?", "What is written here?", "Read the word."), "it says {x}"),
    "zh": (("上面写着什么？", "这里写的是什么？", "读出这个词。"), "写着{x}"),
}
_MOVES: Forms = {
    "en": (("Which way does the {s} move?", "Where does the {s} go?", "How does the {s} move?"),
           "the {s} {x}"),
    "zh": (("{s}向哪边移动？", "{s}往哪里走？", "{s}怎么移动？"), "{s}{x}"),
}  # fmt: skip
_HAPPENS: Forms = {
    "en": (("What happens?", "What happens in the video?", "Describe the video."), "{t} {x}"),
    "zh": (("发生了什么？", "视频里有什么？", "描述一下视频。"), "{t}{x}"),
}


def colour(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    thing = rng.choice(scene.things)
    words = {"c": COLOUR_NAMES[lang][thing.colour], "s": SHAPE_NAMES[lang][thing.shape]}
    alone = len(scene.things) == 1 and rng.random() < 0.4
    return _asked(rng, lang, "colour", scene, _ITS_COLOUR if alone else _COLOUR, **words)


def shape(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    thing = rng.choice(scene.things)
    words = {"c": COLOUR_NAMES[lang][thing.colour], "s": SHAPE_NAMES[lang][thing.shape]}
    alone = len(scene.things) == 1 and rng.random() < 0.6
    return _asked(rng, lang, "shape", scene, _ITS_SHAPE if alone else _SHAPE, **words)


def background(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    return _asked(rng, lang, "background", scene, _PAPER, c=PAPER_NAMES[lang][scene.paper])


def everything(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    """What there is, in words: of each thing how many."""
    parts = [
        a_thing(lang, thing)
        if number == 1
        else f"{number}{' ' if lang == 'en' else '个'}{counted(lang, thing)}"
        for thing, number in zip(scene.things, scene.counts, strict=True)
    ]
    said = (" and " if lang == "en" else "和").join(parts)
    return _asked(rng, lang, "everything", scene, _WHAT, x=said)


def place(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    name = SHAPE_NAMES[lang][scene.things[0].shape]
    return _asked(rng, lang, "place", scene, _WHERE, s=name, x=AT[lang][scene.says])


def relation(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    """What is beside, above or below one of a pair."""
    asked = rng.randrange(2)
    sides = {
        "beside": {"en": ("right", "left"), "zh": ("右边", "左边")},
        "above": {"en": ("below", "above"), "zh": ("下面", "上面")},
    }[scene.says][lang]
    forms = _BESIDE if scene.says == "beside" else _ABOVE
    other = scene.things[1 - asked]
    words = {"s": SHAPE_NAMES[lang][scene.things[asked].shape], "x": sides[asked]}
    return _asked(rng, lang, "relation", scene, forms, t=a_thing(lang, other), **words)


def larger(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    names = [SHAPE_NAMES[lang][thing.shape] for thing in scene.things]
    first = rng.randrange(2)
    words = {"s": names[first], "t": names[1 - first], "x": names[scene.larger]}
    return _asked(rng, lang, "larger", scene, _LARGER, **words)


def is_there(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    """Yes or no: half of the time the thing differs from one that is there in one respect."""
    there = rng.choice(scene.things)
    asked = there
    if rng.random() < 0.5:
        while asked in scene.things:
            if rng.random() < 0.5:
                asked = Thing(rng.choice(tuple(COLOURS)), there.shape)
            else:
                asked = Thing(there.colour, rng.choice(SHAPES))
    yes, no = ("yes", "no") if lang == "en" else ("有", "没有")
    answer = yes if asked in scene.things else no
    named = a_thing("en", asked) if lang == "en" else counted("zh", asked)
    return _asked(rng, lang, "is_there", scene, _IS_THERE, t=named, x=answer)


def count(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    """How many there are, of one kind or of all."""
    total, asked = sum(scene.counts), None
    if rng.random() < 0.6:
        index = rng.randrange(len(scene.things))
        asked, total = scene.things[index], scene.counts[index]
    named = counted(lang, asked) if asked else ("shapes" if lang == "en" else "图形")
    said = str(total)
    if lang == "en":
        one = f"{asked.colour} {asked.shape}" if asked else "shape"
        said = f"is 1 {one}" if total == 1 else f"are {total} {named}"
    return _asked(rng, lang, "count", scene, _COUNT, p=named, x=said)


def number(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    return _asked(rng, lang, "number", scene, _NUMBER, x=scene.says)


def word(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    return _asked(rng, lang, "word", scene, _WORD, x=scene.says)


def motion(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    name = SHAPE_NAMES[lang][scene.things[0].shape]
    return _asked(rng, lang, "motion", scene, _MOVES, s=name, x=MOVES[lang][scene.says])


def happening(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    words = {"t": a_thing(lang, scene.things[0]), "x": MOVES[lang][scene.says]}
    return _asked(rng, lang, "happening", scene, _HAPPENS, **words)


Ask = Callable[[random.Random, str, Scene], Exchange]

# What is asked of a kind of scene, and how often.
ASKED: dict[str, dict[Ask, float]] = {
    "single": {colour: 0.5, shape: 0.5, place: 3, everything: 0.5, is_there: 2.5, background: 0.7},
    "pair": {colour: 4, shape: 4, relation: 1.5, everything: 1, is_there: 2.5, larger: 0.7},
    "many": {count: 5, everything: 1, is_there: 1.5, background: 0.3},
    "number": {number: 5, colour: 1, background: 0.5},
    "word": {word: 5, colour: 1, background: 0.5},
    "clip": {motion: 4, happening: 2, colour: 1, shape: 1},
}


def ask(rng: random.Random, lang: str, scene: Scene) -> Exchange:
    """A random question about a scene."""
    choices = dict(ASKED[scene.kind])
    if scene.larger < 0:
        choices.pop(larger, None)
    return rng.choices(tuple(choices), tuple(choices.values()))[0](rng, lang, scene)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Questions about one scene, or small talk without any."""

    system: str | None
    scene: Scene | None
    exchanges: tuple[Exchange, ...]


_SYSTEM_PROMPTS = {
    "en": ("You are a helpful assistant.", "Answer the question.", "Look at the picture."),
    "zh": ("你是一个有用的助手。", "请回答用户的问题。", "请看图回答。"),
}
_SMALL_TALK = {
    "en": (
        (("Who are you?", "What are you?", "What is your name?"),
         "I am Headrace's tiny vision model."),
        (("Hello!", "Hi!", "Good morning!"), "Hello! Show me a picture."),
        (("Thank you.", "Thanks!"), "You are welcome."),
        (("What is in the picture?", "What do you see?", "What colour is it?"),
         "I see no picture."),
    ),
    "zh": (
        (("你是谁？", "你叫什么名字？"), "我是Headrace的小视觉模型。"),
        (("你好！", "你好"), "你好！给我看一张图片吧。"),
        (("谢谢！", "谢谢你。"), "不客气。"),
        (("图中有什么？", "你看到了什么？", "它是什么颜色的？"), "我没有看到图片。"),
    ),
}  # fmt: skip


def small_talk(rng: random.Random, lang: str) -> Exchange:
    """A question without a picture."""
    questions, reply = rng.choice(_SMALL_TALK[lang])
    return Exchange("talk", "", rng.choice(questions), reply, (reply,), "equals")


def training_dialogue(rng: random.Random, kind: str, size: Size, turns: int) -> Dialogue:
    """A conversation about a trained scene of a kind, or small talk if the kind is "talk"."""
    lang = rng.choice(("en", "zh"))
    system = rng.choice(_SYSTEM_PROMPTS[lang]) if rng.random() < 0.15 else None
    if kind == "talk":
        return Dialogue(system, None, (small_talk(rng, lang),))
    scene = draw_scene(rng, kind, size)
    languages = [lang if rng.random() < 0.8 else rng.choice(("en", "zh")) for _ in range(turns)]
    return Dialogue(system, scene, tuple(ask(rng, each, scene) for each in languages))


# How many of the 200 held-out questions test each skill, and about which scenes; half of each in
# English.
HELDOUT: tuple[tuple[str, Ask, int], ...] = (
    ("single", colour, 14),
    ("single", shape, 16),
    ("single", place, 22),
    ("single", background, 4),
    ("single", is_there, 8),
    ("pair", colour, 12),
    ("pair", shape, 12),
    ("pair", relation, 20),
    ("pair", larger, 8),
    ("many", count, 24),
    ("number", number, 22),
    ("word", word, 18),
    ("clip", motion, 14),
    ("clip", happening, 6),
)


def heldout_question(
    rng: random.Random, kind: str, asks: Ask, lang: str, size: Size
) -> tuple[Scene, Exchange]:
    """A question of a skill about a held-out scene."""
    scene = draw_scene(rng, kind, size, heldout=True)
    while asks is larger and scene.larger < 0:
        scene = draw_scene(rng, kind, size, heldout=True)
    return scene, asks(rng, lang, scene)


def heldout_items(seed: int = HELDOUT_SEED) -> list[dict[str, Any]]:
    """The test: 200 questions about held-out scenes, each scene drawn anew."""
    rng = random.Random(seed)
    items: list[dict[str, Any]] = []
    for kind, asks, wanted in HELDOUT:
        for i in range(wanted):
            lang = ("en", "zh")[i % 2]
            scene, exchange = heldout_question(rng, kind, asks, lang, rng.choice(SIZES))
            items.append(
                {
                    "id": len(items),
                    "skill": exchange.skill,
                    "lang": lang,
                    "key": scene.key,
                    "picture": scene.picture.to_json(),
                    "question": exchange.question,
                    "answers": list(exchange.answers),
                    "match": exchange.match,
                }
            )
    return items


def picture_of(item: dict[str, Any]) -> Picture:
    """The picture or clip of a line of heldout.jsonl."""
    return from_json(item["picture"])


def messages_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    """A line of heldout.jsonl as a conversation for LLM.chat, the picture or clip as an array."""
    frames = draw(picture_of(item))
    shown: dict[str, Any] = {"type": "image", "image": frames[0]}
    if len(frames) > 1:
        shown = {"type": "video", "video": frames, "fps": 2}
    return [{"role": "user", "content": [shown, {"type": "text", "text": item["question"]}]}]


# Files, and which lines of heldout.jsonl they show.
PICTURES: dict[str, int] = {
    "a.png": 14,
    "b.png": 0,
    "c.png": 31,
    "d.png": 88,
    "e.png": 109,
    "f.png": 120,
    "g.png": 121,
    "h.png": 140,
    "i.png": 162,
    "j.png": 163,
    "k.gif": 198,
    "l.gif": 183,
}


def write_pictures(folder: Path) -> None:
    """Writes the files of PICTURES; a clip has two frames a second."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    items = heldout_items()
    for name, number in PICTURES.items():
        first, *others = (Image.fromarray(frame) for frame in draw(picture_of(items[number])))
        if others:
            first.save(folder / name, save_all=True, append_images=others, duration=500, loop=0)
        else:
            first.save(folder / name, optimize=True)


def main() -> None:
    """Prints training dialogues, or writes the held-out questions or pictures of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--heldout", type=Path, help="write the held-out questions to this file")
    parser.add_argument("--pictures", type=Path, help="write some of their pictures to this folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the printed dialogues")
    args = parser.parse_args()
    if args.pictures:
        write_pictures(args.pictures)
        return
    if args.heldout:
        items = heldout_items()
        if len(items) != HELDOUT_COUNT:
            raise RuntimeError(f"{len(items)} held-out questions instead of {HELDOUT_COUNT}")
        lines = [json.dumps(item, ensure_ascii=False) for item in items]
        args.heldout.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    rng = random.Random(args.seed)
    for kind in (*SCENES, "talk"):
        dialogue = training_dialogue(rng, kind, rng.choice(SIZES), 4)
        print(dialogue.scene.key if dialogue.scene else "no picture")
        for exchange in dialogue.exchanges:
            print(f"  {exchange.question}  {exchange.reply}")


if __name__ == "__main__":
    main()

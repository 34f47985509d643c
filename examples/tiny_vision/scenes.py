"""Scenes: what a picture means, beside the picture itself.

Every scene has a key that says what there is to know of it. Whether it is trained or held out
follows from a hash of the key (questions.is_heldout), so that no picture of a held-out scene, in
any shade, size or place, is ever trained.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from beside import words
from glyphs import HAN
from pictures import Mark, Picture, Rgb

Size = tuple[int, int]
SIZES: tuple[Size, ...] = ((64, 64), (64, 64), (64, 64), (80, 48), (48, 80))  # width, height

COLOURS: dict[str, Rgb] = {
    "red": (220, 30, 30),
    "orange": (255, 140, 0),
    "yellow": (240, 220, 30),
    "green": (30, 160, 50),
    "blue": (30, 70, 220),
    "purple": (140, 40, 170),
}
PAPERS: dict[str, Rgb] = {"white": (250, 250, 250), "grey": (150, 150, 150), "black": (12, 12, 12)}
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring")
PLACES = (
    ("top left", "top", "top right"),
    ("left", "centre", "right"),
    ("bottom left", "bottom", "bottom right"),
)
ENGLISH = words(
    "CAT DOG SUN CAR BUS CUP HAT PEN KEY BOX TREE FISH BIRD MOON STAR BOOK MILK RICE YES NO "
    "GO HI STOP SHIP"
)
WORDS = (*ENGLISH, *HAN)
MOTIONS: dict[str, tuple[int, int]] = {
    "left": (-1, 0),
    "right": (1, 0),
    "up": (0, -1),
    "down": (0, 1),
    "still": (0, 0),
}
MOST = 6  # shapes in a picture


@dataclass(frozen=True, slots=True)
class Thing:
    """A colour and a shape ("number" and "word" are shapes, too)."""

    colour: str
    shape: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture and what is true of it.

    things: without those of the same colour and shape. Of a pair: the left or upper one first.
    counts: how many there are of each thing.
    says: of a single shape its place, of a pair "beside" or "above", of a text the text, of a clip
        the motion.
    larger: of a pair which one is much larger; -1: neither.
    """

    kind: str
    key: str
    picture: Picture
    paper: str
    things: tuple[Thing, ...]
    counts: tuple[int, ...] = (1,)
    says: str = ""
    larger: int = -1


def random_shade(rng: random.Random, rgb: Rgb) -> Rgb:
    """The colour, a little lighter or darker."""
    red, green, blue = (min(255, max(0, value + rng.randrange(-14, 15))) for value in rgb)
    return red, green, blue


def random_paper(rng: random.Random) -> tuple[str, Rgb]:
    name = rng.choice(("white", "white", "grey", "black"))
    more = rng.randrange(-14, 15)
    red, green, blue = (min(255, max(0, value + more)) for value in PAPERS[name])
    return name, (red, green, blue)


def _thing(rng: random.Random) -> Thing:
    return Thing(rng.choice(tuple(COLOURS)), rng.choice(SHAPES))


def _mark(rng: random.Random, thing: Thing, x: int, y: int, radius: int) -> Mark:
    return Mark(thing.shape, random_shade(rng, COLOURS[thing.colour]), x, y, radius)


def _within(rng: random.Random, low: int, high: int, radius: int) -> int:
    """A centre between two borders, so that the radius stays inside."""
    return rng.randint(low + radius, max(low + radius, high - 1 - radius))


def single(rng: random.Random, size: Size) -> Scene:
    """One shape in one of nine places."""
    thing, (name, rgb) = _thing(rng), random_paper(rng)
    row, column = rng.randrange(3), rng.randrange(3)
    place = PLACES[row][column]
    radius = rng.randint(6, 10)
    # The centre lies well inside its third of the picture.
    x, y = (
        min(max((6 * at + 3) * side // 18 + rng.randint(-side // 20, side // 20), radius),
            side - 1 - radius)
        for at, side in ((column, size[0]), (row, size[1]))
    )  # fmt: skip
    picture = Picture(*size, rgb, (_mark(rng, thing, x, y, radius),))
    key = f"single {thing.colour} {thing.shape} {place}"
    return Scene("single", key, picture, name, (thing,), says=place)


def pair(rng: random.Random, size: Size) -> Scene:
    """Two things that differ in colour and shape, side by side or one above the other."""
    first, second, (name, rgb) = _thing(rng), _thing(rng), random_paper(rng)
    while second.colour == first.colour or second.shape == first.shape:
        second = _thing(rng)
    larger = rng.randrange(-1, 2)
    beside = rng.random() < (0.5 if size[0] == size[1] else 0.85 if size[0] > size[1] else 0.15)
    radii = [rng.randint(7, 9), rng.randint(7, 9)]
    if larger >= 0:
        radii[larger], radii[1 - larger] = rng.randint(11, 13), rng.randint(5, 7)
    along, across = size if beside else (size[1], size[0])
    middle = along * (radii[0] + 1) // (sum(radii) + 2)
    places = (
        (_within(rng, 0, middle, radii[0]), _within(rng, 0, across, radii[0])),
        (_within(rng, middle, along, radii[1]), _within(rng, 0, across, radii[1])),
    )
    marks = tuple(
        _mark(rng, thing, *(place if beside else place[::-1]), radius)
        for thing, place, radius in zip((first, second), places, radii, strict=True)
    )
    relation = "beside" if beside else "above"
    key = f"pair {first.colour} {first.shape} {relation} {second.colour} {second.shape}"
    picture = Picture(*size, rgb, marks)
    return Scene("pair", key, picture, name, (first, second), (1, 1), relation, larger)


def many(rng: random.Random, size: Size) -> Scene:
    """Up to six shapes of one or two kinds, none over another."""
    first, second, (name, rgb) = _thing(rng), _thing(rng), random_paper(rng)
    while second == first:
        second = _thing(rng)
    total = rng.randint(1, MOST)
    rest = rng.randint(1, total - 1) if total > 1 and rng.random() < 0.5 else 0
    counts = (total - rest, rest) if rest else (total,)
    # Each shape has a cell of its own in a grid of four by four (or five by three).
    side = 16
    columns, rows = size[0] // side, size[1] // side
    cells = rng.sample([(x, y) for x in range(columns) for y in range(rows)], total)
    radius = rng.randint(5, 7)
    marks = []
    for index, (column, row) in enumerate(cells):
        x = column * side + rng.randint(radius, side - 1 - radius)
        y = row * side + rng.randint(radius, side - 1 - radius)
        marks.append(_mark(rng, first if index < counts[0] else second, x, y, radius))
    things = (first, second)[: len(counts)]
    parts = sorted(f"{n} {t.colour} {t.shape}" for n, t in zip(counts, things, strict=True))
    picture = Picture(*size, rgb, tuple(marks))
    return Scene("many", "many " + ", ".join(parts), picture, name, things, counts)


def _text(
    rng: random.Random, size: Size, what: str, text: str, scales: tuple[int, ...]
) -> Scene:  # fmt: skip
    colour, (name, rgb) = rng.choice(tuple(COLOURS)), random_paper(rng)
    high, wide = (9, 9) if text in HAN else (7, 6 * len(text) - 1)
    scale = rng.choice([scale for scale in scales if wide * scale <= size[0]])
    height, width = high * scale, wide * scale
    x = rng.randint(0, size[0] - width) + width // 2
    y = rng.randint(0, size[1] - height) + height // 2
    mark = Mark(text, random_shade(rng, COLOURS[colour]), x, y, scale)
    key = f"number {text}" if what == "number" else f"word {text} {colour} {name}"
    picture = Picture(*size, rgb, (mark,))
    return Scene(what, key, picture, name, (Thing(colour, what),), says=text)


def number(rng: random.Random, size: Size) -> Scene:
    """A number below 1000. Held out by the number, so that no picture shows it in training."""
    top = rng.choice((10, 100, 100, 1000))
    return _text(rng, size, "number", str(rng.randrange(top)), (2, 3))


def word(rng: random.Random, size: Size) -> Scene:
    """A short word or a Chinese character: learnt by heart, held out by its colours."""
    return _text(rng, size, "word", rng.choice(WORDS), (2, 3))


def clip(rng: random.Random, size: Size) -> Scene:
    """A shape that moves in one of four directions over four frames, or doesn't."""
    thing, (name, rgb), motion = _thing(rng), random_paper(rng), rng.choice(tuple(MOTIONS))
    radius, pace = rng.randint(6, 9), rng.randint(4, 8)
    right, down = MOTIONS[motion]
    start = []
    for side, sign in ((size[0], right), (size[1], down)):
        way = 3 * pace if sign else 0
        at = _within(rng, 0, side - way, radius)
        start.append(at + way if sign < 0 else at)
    mark = _mark(rng, thing, start[0], start[1], radius)
    picture = Picture(*size, rgb, (mark,), 4, (right * pace, down * pace))
    key = f"clip {thing.colour} {thing.shape} {motion}"
    return Scene("clip", key, picture, name, (thing,), says=motion)


SCENES: dict[str, Callable[[random.Random, Size], Scene]] = {
    "single": single,
    "pair": pair,
    "many": many,
    "number": number,
    "word": word,
    "clip": clip,
}

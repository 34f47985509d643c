"""What each row of the language model should know of a picture: the lesson that the tower and the
resampler get beside the questions. Only training needs it."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from glyphs import GLYPHS, dots
from pictures import FACTOR, INSIDE, Mark, Picture, Rgb, characters, coverage
from scenes import COLOURS, MOTIONS, PAPERS, Size, random_paper, random_shade

_MOST = 5  # cells in a row or a column
LABELS = (
    *INSIDE,
    *GLYPHS,
    "middle",
    *(f"column {x}" for x in range(_MOST)),
    *(f"row {y}" for y in range(_MOST)),
    *COLOURS,
    *MOTIONS,
    *PAPERS,
)
_INDEX = {name: index for index, name in enumerate(LABELS)}
_LEAST = 8  # pixels of something in a cell that count


def cells(picture: Picture) -> np.ndarray:
    """bool [rows, labels]: which shapes, characters and colours a cell of 16 x 16 pixels has a part
    of, and whether the middle of one lies in it (if so, also the cell's row and column); in a clip,
    how they move; the paper. Of two frames the first counts."""
    height, width = picture.height // FACTOR, picture.width // FACTOR
    grids = range(0, picture.frames, 2)
    found = np.zeros((len(grids), height, width, len(LABELS)), bool)
    found[..., _INDEX[_nearest(picture.paper, PAPERS)]] = True
    for grid, number in zip(found, grids, strict=True):
        for mark in picture.marks:
            x, y = mark.x + number * picture.step[0], mark.y + number * picture.step[1]
            for what, middle, covered in _parts(picture, mark, x, y):
                blocks = covered.reshape(height, FACTOR, width, FACTOR).sum(axis=(1, 3))
                for name in (what, _nearest(mark.rgb, COLOURS), *_motion(picture)):
                    grid[..., _INDEX[name]] |= blocks >= _LEAST
                column, row = middle[0] // FACTOR, middle[1] // FACTOR
                for name in ("middle", f"column {column}", f"row {row}"):
                    grid[row, column, _INDEX[name]] = True
    return found.reshape(-1, len(LABELS))


def _parts(
    picture: Picture, mark: Mark, x: int, y: int
) -> list[tuple[str, tuple[int, int], np.ndarray]]:
    """Of a shape itself, of a text each character: its name, its middle, the pixels it covers."""
    canvas = (picture.height, picture.width)
    if mark.what in INSIDE:
        return [(mark.what, (x, y), coverage(canvas, mark, x, y))]
    return characters(canvas, mark, x, y)


def _nearest(rgb: Rgb, named: Mapping[str, Rgb]) -> str:
    """The name of the colour nearest to another."""

    def distance(name: str) -> int:
        return sum((a - b) ** 2 for a, b in zip(rgb, named[name], strict=True))

    return min(named, key=distance)


def _motion(picture: Picture) -> list[str]:
    if picture.frames == 1:
        return []
    sign = tuple((step > 0) - (step < 0) for step in picture.step)
    return [name for name, own in MOTIONS.items() if own == sign]


def practice(rng: random.Random, size: Size) -> Picture:
    """Shapes and characters in disorder, so that a picture has much to learn: at least one of each,
    which no scene has, and no two characters in a line."""
    taken = np.zeros((size[1], size[0]), bool)
    marks: list[Mark] = []
    names = [rng.choice(tuple(INSIDE)), rng.choice(tuple(GLYPHS))]
    names += [rng.choice(LABELS[: len(INSIDE) + len(GLYPHS)]) for _ in range(16)]
    for name in names:
        scale = rng.choice((2, 2, 3)) if name in GLYPHS else rng.randint(5, 12)
        high, wide = dots(name, scale).shape if name in GLYPHS else (2 * scale + 1, 2 * scale + 1)
        x = rng.randint(wide // 2 + 1, size[0] - wide // 2 - 2)
        y = rng.randint(high // 2 + 1, size[1] - high // 2 - 2)
        top, left = y - high // 2, x - wide // 2
        # Characters keep apart, so that none looks like a part of a longer text.
        room = taken[max(0, top - 1) : top + high + 1, max(0, left - 1) : left + wide + 1]
        if not room.any():
            room[...] = True
            rgb = random_shade(rng, COLOURS[rng.choice(tuple(COLOURS))])
            marks.append(Mark(name, rgb, x, y, scale))
    return Picture(*size, random_paper(rng)[1], tuple(marks))

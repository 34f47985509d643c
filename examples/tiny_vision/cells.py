"""What each row of the language model should know of a picture: the lesson that the tower and the
resampler get beside the questions. Only training needs it."""

from __future__ import annotations

import numpy as np

from glyphs import GLYPHS
from pictures import FACTOR, INSIDE, Mark, Picture, characters, coverage

_MOST = 5  # cells in a row or a column
LABELS = (
    *INSIDE,
    *GLYPHS,
    "middle",
    *(f"column {x}" for x in range(_MOST)),
    *(f"row {y}" for y in range(_MOST)),
)
_INDEX = {name: index for index, name in enumerate(LABELS)}
_LEAST = 8  # pixels of something in a cell that count


def cells(picture: Picture) -> np.ndarray:
    """bool [rows, labels]: which shapes and characters a cell of 16 x 16 pixels has a part of, and
    whether the middle of one lies in it; if so, in which row and column the cell is. Of two frames
    the first counts."""
    height, width = picture.height // FACTOR, picture.width // FACTOR
    grids = range(0, picture.frames, 2)
    found = np.zeros((len(grids), height, width, len(LABELS)), bool)
    for grid, number in zip(found, grids, strict=True):
        for mark in picture.marks:
            x, y = mark.x + number * picture.step[0], mark.y + number * picture.step[1]
            for what, middle, covered in _parts(picture, mark, x, y):
                blocks = covered.reshape(height, FACTOR, width, FACTOR).sum(axis=(1, 3))
                grid[..., _INDEX[what]] |= blocks >= _LEAST
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

"""What is in a picture or a clip, down to the pixel, and drawing it. Whole numbers alone decide
each pixel, so that a picture is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glyphs import dots

Rgb = tuple[int, int, int]

PATCH = 8  # side in pixels of what the tower takes as one
FACTOR = 2 * PATCH  # and of what becomes one row of the language model
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, slots=True)
class Mark:
    """A shape or a text: its colour, its centre, and its radius in pixels (of a text: a dot's
    side)."""

    what: str
    rgb: Rgb
    x: int
    y: int
    size: int


@dataclass(frozen=True, slots=True)
class Picture:
    """Marks on paper, later ones on top. A clip has several frames; its marks move by `step`
    (pixels to the right and down) from each to the next."""

    width: int
    height: int
    paper: Rgb
    marks: tuple[Mark, ...]
    frames: int = 1
    step: tuple[int, int] = (0, 0)

    def to_json(self) -> dict[str, Any]:
        """As a line of heldout.jsonl has it."""
        return asdict(self)


def from_json(value: Mapping[str, Any]) -> Picture:
    """What Picture.to_json gave."""
    marks = tuple(Mark(**{**mark, "rgb": tuple(mark["rgb"])}) for mark in value["marks"])
    tuples = {"marks": marks, "paper": tuple(value["paper"]), "step": tuple(value["step"])}
    return Picture(**{**value, **tuples})


# Which pixels belong to a shape of radius r, by the distances from its centre.
_Inside = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
INSIDE: dict[str, _Inside] = {
    "circle": lambda x, y, r: x * x + y * y <= r * r,
    "ring": lambda x, y, r: (x * x + y * y <= r * r) & (9 * (x * x + y * y) >= 4 * r * r),
    "square": lambda x, y, r: 8 * np.maximum(abs(x), abs(y)) <= 7 * r,
    "diamond": lambda x, y, r: abs(x) + abs(y) <= r,
    "cross": lambda x, y, r: (
        (3 * np.minimum(abs(x), abs(y)) <= r) & (np.maximum(abs(x), abs(y)) <= r)
    ),
    "triangle": lambda x, y, r: (2 * abs(x) <= y + r) & (8 * y <= 7 * r),
}


def draw(picture: Picture) -> np.ndarray:
    """uint8 [frames, height, width, 3]."""
    shape = (picture.frames, picture.height, picture.width, 3)
    canvas = np.broadcast_to(np.array(picture.paper, np.uint8), shape).copy()
    for number, frame in enumerate(canvas):
        for mark in picture.marks:
            x = mark.x + number * picture.step[0]
            y = mark.y + number * picture.step[1]
            frame[coverage(frame.shape[:2], mark, x, y)] = mark.rgb
    return canvas


def coverage(canvas: tuple[int, ...], mark: Mark, x: int, y: int) -> np.ndarray:
    """bool [height, width]: the pixels of a mark whose centre is at (x, y)."""
    if mark.what in INSIDE:
        rows, columns = np.arange(canvas[0])[:, None] - y, np.arange(canvas[1])[None, :] - x
        return INSIDE[mark.what](columns, rows, mark.size)
    covered = np.zeros(canvas, bool)
    for _, _, own in characters(canvas, mark, x, y):
        covered |= own
    return covered


def characters(
    canvas: tuple[int, ...], mark: Mark, x: int, y: int
) -> list[tuple[str, tuple[int, int], np.ndarray]]:
    """The characters of a text from left to right: each with its middle (x, y) and its pixels."""
    glyphs = [dots(character, mark.size) for character in mark.what]
    width = sum(glyph.shape[1] + mark.size for glyph in glyphs) - mark.size
    top, left = y - glyphs[0].shape[0] // 2, x - width // 2
    found = []
    for character, glyph in zip(mark.what, glyphs, strict=True):
        bottom, right = top + glyph.shape[0], left + glyph.shape[1]
        if top < 0 or left < 0 or bottom > canvas[0] or right > canvas[1]:
            raise ValueError(f"the text {mark.what!r} of size {mark.size} leaves the picture")
        covered = np.zeros(canvas, bool)
        covered[top:bottom, left:right] = glyph
        found.append((character, ((left + right) // 2, (top + bottom) // 2), covered))
        left = right + mark.size
    return found


def patches(pixels: np.ndarray) -> np.ndarray:
    """What the tower is shown of uint8 [frames, height, width, 3]: float32 [frames, patches, 192],
    normalised, the four patches of a row of the language model behind each other."""
    frames, height, width, _ = pixels.shape
    mean, std = (255 * np.array(values, np.float32) for values in (MEAN, STD))
    values = (pixels.astype(np.float32) - mean) / std
    blocks = values.reshape(frames, height // FACTOR, 2, PATCH, width // FACTOR, 2, PATCH, 3)
    return blocks.transpose(0, 1, 4, 2, 5, 7, 3, 6).reshape(frames, -1, 3 * PATCH * PATCH)

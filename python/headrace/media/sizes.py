"""What size an image or the frames of a clip are resized to. Heights come before widths."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.errors import MediaError

_MOST_SLIM = 200
LONGEST_TILED = 4096  # a tiled image's longer side


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sides become multiples of `factor`, and their product lies between the two, where it can."""

    factor: int
    min_pixels: int
    max_pixels: int


def image_size(height: int, width: int, bounds: Bounds) -> tuple[int, int]:
    """The multiples of the factor nearest to the sides (halves to the even one), then the largest
    or smallest that keep the shape and the bounds. Raises MediaError for a strip longer than 200
    times its width."""
    _check_shape(height, width)
    factor = bounds.factor
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    return _within(height, width, 1, tall * wide, (tall, wide), bounds)


def clip_size(frames: int, height: int, width: int, bounds: Bounds, pair: int) -> tuple[int, int]:
    """Qwen3-VL's rule: the bounds are those of all frames together, rounded to multiples of
    `pair`. Raises MediaError for fewer frames than `pair`, and as image_size does."""
    if frames < pair:
        raise MediaError(
            f"it has {frames} frames to use: {pair} are the least that this model takes"
        )
    factor = bounds.factor
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    _check_shape(height, width)
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    total = round(frames / pair) * pair * tall * wide
    return _within(height, width, frames, total, (tall, wide), bounds)


def longest_edge_size(height: int, width: int, longest: int) -> tuple[int, int]:
    """SmolVLM's rule for whole images: the longer side becomes `longest` (at most 4096), the
    shorter one is even unless the longer one is cut to 4096."""
    aspect = width / height
    if width >= height:
        tall, wide = _even(int(longest / aspect)), longest
    else:
        tall, wide = longest, _even(int(longest * aspect))
    tall, wide = max(tall, 1), max(wide, 1)
    aspect = wide / tall
    if wide >= tall and wide > LONGEST_TILED:
        tall, wide = int(LONGEST_TILED / aspect), LONGEST_TILED
    elif tall > wide and tall > LONGEST_TILED:
        tall, wide = LONGEST_TILED, int(LONGEST_TILED * aspect)
    return max(tall, 1), max(wide, 1)


def tiled_size(height: int, width: int, tile: int) -> tuple[int, int]:
    """The multiples of a tile that cover an image, the longer side first."""
    aspect = width / height
    if width >= height:
        wide = math.ceil(width / tile) * tile
        return max(math.ceil(int(wide / aspect) / tile), 1) * tile, wide
    tall = math.ceil(height / tile) * tile
    return tall, max(math.ceil(int(tall * aspect) / tile), 1) * tile


def _within(
    height: int, width: int, frames: int, total: int, rounded: tuple[int, int], bounds: Bounds
) -> tuple[int, int]:
    factor = bounds.factor
    if total > bounds.max_pixels:
        shrink = math.sqrt(frames * height * width / bounds.max_pixels)
        return (
            max(factor, math.floor(height / shrink / factor) * factor),
            max(factor, math.floor(width / shrink / factor) * factor),
        )
    if total < bounds.min_pixels:
        grow = math.sqrt(bounds.min_pixels / (frames * height * width))
        return (
            math.ceil(height * grow / factor) * factor,
            math.ceil(width * grow / factor) * factor,
        )
    return max(rounded[0], factor), max(rounded[1], factor)


def _check_shape(height: int, width: int) -> None:
    if max(height, width) > _MOST_SLIM * min(height, width):
        raise MediaError(
            f"it has {width} x {height} pixels: one side may be at most {_MOST_SLIM} times as long "
            "as the other"
        )


def _even(side: int) -> int:
    return side + side % 2

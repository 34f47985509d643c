"""Where an item's rows stand in a prompt, and the positions on three axes that they have."""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.errors import MediaError
from headrace.media.item import Grid, MediaItem
from headrace.media.model_settings import ModelSettings
from headrace.media.stamps import number_in_words

_AROUND = "<fake_token_around_image>"
_GLOBAL = "<global-img>"
_BEFORE_SQUARE, _BEHIND_SQUARE = "\n\n<start_of_image>", "<end_of_image>\n\n"
MAX_POSITION = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """A run of an item's rows: `count` times the token `pad`.

    first: which of the item's rows the run begins with.
    grid: rows over time, height and width, in that order; None: the positions of text.
    steps: what each grid over time adds to the first axis.
    """

    item: MediaItem
    pad: str
    first: int
    count: int
    grid: Grid | None
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RopePositions:
    """One position per token on each axis.

    next: the position of the first generated token, on all axes: one above the largest so far, and
        never an index into a table without a check: it may exceed the number of tokens.
    """

    t: array[int]
    h: array[int]
    w: array[int]
    next: int

    @property
    def delta(self) -> int:
        """What is added to the index of a generated token to get its position."""
        return self.next - len(self.t)


def lay_out(
    text: str, images: Sequence[MediaItem], videos: Sequence[MediaItem], model: ModelSettings
) -> list[str | Rows]:
    """A rendered prompt with its items in place: texts, to be tokenized each by itself with
    special tokens read, and runs of rows between them.

    text: what the model's chat template made; items stand in it as the family's marks, in order. A
        mark that a user typed counts like any other: there are then more marks than items.
    Raises MediaError unless there are as many marks as items of each modality.
    """
    family = model.family
    marks = list(re.finditer("|".join(map(re.escape, family.marks)), text))
    given = {"image": list(images), "video": list(videos)}
    for modality, wanted in (("image", family.image_mark), ("video", family.video_mark)):
        found = sum(mark.group() == wanted for mark in marks)
        if found != len(given[modality]):
            raise MediaError(
                f"the prompt has {found} places for items of the kind {modality}, and "
                f"{len(given[modality])} were given: there must be one {wanted} for each"
            )
    queues = {modality: iter(items) for modality, items in given.items()}
    pieces: list[str | Rows] = []
    end = 0
    for mark in marks:
        pieces.append(text[end : mark.start()])
        modality = "image" if mark.group() == family.image_mark else "video"
        pieces += item_pieces(next(queues[modality]), model)
        end = mark.end()
    pieces.append(text[end:])
    return _joined(pieces)


def item_pieces(
    item: MediaItem, model: ModelSettings, rows_alone: bool = False
) -> list[str | Rows]:
    """What takes the place of an item's mark; or, with `rows_alone`, of the tokens of its rows,
    where what is around them stands there already."""
    family = model.family
    pad = family.video_pad if item.modality == "video" else family.image_pad
    if family.name == "smolvlm":
        return _tiled(item, pad)
    if family.name == "gemma3":
        rows = Rows(item, pad, 0, item.rows, None)
        return [rows] if rows_alone else [_BEFORE_SQUARE, rows, _BEHIND_SQUARE]
    if item.modality == "video" and family.video_time == "text":
        return _timed(item, pad)
    return [Rows(item, pad, 0, item.rows, item.llm_grid, time_steps(item, model))]


def time_steps(item: MediaItem, model: ModelSettings) -> tuple[int, ...]:
    """What each grid of an item adds to the positions over time."""
    count = item.llm_grid.t
    if item.modality == "image" or model.family.video_time != "seconds":
        return tuple(range(count))
    # In float32, as the models were trained: a fraction is lost at the end alone.
    interval = _float32(model.tokens_per_second * _float32(item.second_per_grid))
    steps = tuple(int(_float32(index * interval)) for index in range(count))
    if steps[-1] > MAX_POSITION:
        raise MediaError(f"the clip's time leads to position {steps[-1]}: it is too long")
    return steps


def rope_positions(pieces: Iterable[int | Rows]) -> RopePositions:
    """Positions of a prompt: of texts by their number of tokens, and of runs of rows.

    An item's positions begin where the text before it ends; what follows begins one above its
    largest one. Raises MediaError beyond MAX_POSITION.
    """
    axes = array("q"), array("q"), array("q")
    position = 0
    for piece in pieces:
        if isinstance(piece, int) or piece.grid is None:
            count = piece if isinstance(piece, int) else piece.count
            run = array("q", range(position, position + count))
            for axis in axes:
                axis.extend(run)
            position += count
        else:
            position = _place(axes, position, piece.grid, piece.steps)
        if position > MAX_POSITION:
            raise MediaError(f"the prompt leads to position {position}, above {MAX_POSITION}")
    return RopePositions(*axes, position)


def _place(
    axes: tuple[array[int], array[int], array[int]],
    start: int,
    grid: Grid,
    steps: tuple[int, ...],
) -> int:
    area = grid.h * grid.w
    rows = array("q", [start + y for y in range(grid.h) for _ in range(grid.w)])
    columns = array("q", range(start, start + grid.w)) * grid.h
    for step in steps:
        axes[0].extend(array("q", [start + step]) * area)
        axes[1].extend(rows)
        axes[2].extend(columns)
    return start + max(steps[-1] + 1, grid.h, grid.w)


def _timed(item: MediaItem, pad: str) -> list[str | Rows]:
    """Qwen3-VL: each grid behind its time. The pair around the whole clip is left out, as the
    makers do."""
    area = item.llm_grid.h * item.llm_grid.w
    grid = Grid(1, item.llm_grid.h, item.llm_grid.w)
    pieces: list[str | Rows] = []
    for number, seconds in enumerate(item.timestamps):
        pieces += [
            f"<{seconds:.1f} seconds><|vision_start|>",
            Rows(item, pad, number * area, area, grid, (0,)),
            "<|vision_end|>",
        ]
    return pieces


def _tiled(item: MediaItem, pad: str) -> list[str | Rows]:
    """SmolVLM: rows and columns of tiles, then the whole image; of a clip, each frame's time."""
    area = item.llm_grid.w

    def tile(number: int) -> Rows:
        return Rows(item, pad, number * area, area, None)

    pieces: list[str | Rows] = []
    if item.modality == "video":
        whole = int(item.duration)
        pieces.append(
            "You are provided the following series of "
            f"{number_in_words(item.llm_grid.t)} frames from a "
            f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d} [H:MM:SS] video.\n"
        )
        for number, seconds in enumerate(item.timestamps):
            time = f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"
            opening = f"\nFrame from {time}:{_AROUND}{_GLOBAL}"
            pieces += [opening, tile(number), _AROUND]
        return [*pieces, "\n\n"]
    rows, columns = item.tiles
    for row in range(rows):
        for column in range(columns):
            pieces.append(f"{_AROUND}<row_{row + 1}_col_{column + 1}>")
            pieces.append(tile(row * columns + column))
        pieces.append("\n")
    opening = f"\n{_AROUND}{_GLOBAL}" if rows else f"{_AROUND}{_GLOBAL}"
    return [*pieces, opening, tile(rows * columns), _AROUND]


def _joined(pieces: list[str | Rows]) -> list[str | Rows]:
    """Adjacent texts as one, empty ones left out."""
    found: list[str | Rows] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece:
            found.append(piece)
    return found


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])

"""MultiMediaInfo: rows of images and clips, made elsewhere, and their places in a prompt."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.allspark.enums import AsStatus
from headrace.allspark.serving import dlpack
from headrace.allspark.serving.token_ids import TokenIdsError, read_rows
from headrace.media.item import Grid
from headrace.media.layout import rope_positions
from headrace.native import MediaInput, MediaRun
from headrace.quoting import quoted

HASHES, POSITIONS = "hash_input", "positions"


class MultiMediaInfo:
    """What a request shows the model beside text: give it as "mm_info" of the generation config.

    Tensors are DLPack capsules, or objects with __dlpack__, in the memory of the CPU. They must
    live until start_request has returned.
    """

    def __init__(self) -> None:
        self.multimedia_type = 0
        self.content: dict[str, list[Any]] = {}

    def set_multimedia_type(self, multimedia_type: int) -> None:
        """Kept; nothing depends on it."""
        self.multimedia_type = int(multimedia_type)

    def add_multimedia_content(self, key: str, dltensors: Sequence[Any]) -> AsStatus:
        """key: one of

        - the id of a placeholder, in decimal, as "151859": float32, float16 or bfloat16 tensors
          [rows, hidden size], one for each run of that id in the prompt, in their order.
        - "hash_input": integers for each of these tensors, in order of their places, that name its
          content for the prefix cache; without them the engine goes by the content itself.
        - "positions": one int32 tensor [3, length of the prompt], the positions on three axes.
        """
        if not isinstance(key, str) or not key:
            return AsStatus.ALLSPARK_PARAM_ERROR
        self.content[key] = list(dltensors)
        return AsStatus.ALLSPARK_SUCCESS


class MultiMediaError(ValueError):
    """What a MultiMediaInfo has doesn't fit the prompt or the model."""


class _Placed(NamedTuple):
    position: int
    rows: int
    embeddings: bytes


def media_inputs(info: Any, prompt: Sequence[int], hidden_size: int) -> list[MediaInput]:
    """What the engine takes of it. Raises MultiMediaError."""
    if not isinstance(info, MultiMediaInfo):
        raise MultiMediaError(f"mm_info must be a MultiMediaInfo, got {quoted(info)}")
    placed: list[_Placed] = []
    for key, tensors in info.content.items():
        if key not in (HASHES, POSITIONS):
            placed += _places(key, tensors, prompt, hidden_size)
    placed.sort(key=lambda one: one.position)
    keys = _keys(info.content.get(HASHES), placed)
    grids = _grids(info.content.get(POSITIONS), prompt, placed)
    return [
        MediaInput(
            False,
            [MediaRun(one.position, one.rows, 0, grid, steps)],
            embeddings=memoryview(one.embeddings).cast("f", (one.rows, hidden_size)),
            key=key,
        )
        for one, key, (grid, steps) in zip(placed, keys, grids, strict=True)
    ]


def _places(
    key: str, tensors: Sequence[Any], prompt: Sequence[int], hidden_size: int
) -> Iterator[_Placed]:
    """The tensors of one placeholder take its places from left to right."""
    if not (key.isascii() and key.isdecimal() and len(key) < 20):
        raise MultiMediaError(
            f'mm_info has {quoted(key)}: keys are the ids of placeholders, "{HASHES}" and '
            f'"{POSITIONS}"'
        )
    places = [place for place, token in enumerate(prompt) if token == int(key)]
    for number, tensor in enumerate(tensors):
        name = f"mm_info[{quoted(key)}][{number}]"
        try:
            values, rows, width = dlpack.read_floats(tensor)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise MultiMediaError(f"{name} can't be read: {error}") from error
        if width != hidden_size or rows < 1:
            raise MultiMediaError(f"{name} is [{rows}, {width}], the model has [n, {hidden_size}]")
        own, places = places[:rows], places[rows:]
        if len(own) < rows or own[-1] - own[0] != rows - 1:
            raise MultiMediaError(
                f"{name} has {rows} rows, and the prompt no run of as many {key} for it"
            )
        yield _Placed(own[0], rows, values)
    if places:
        raise MultiMediaError(f"the prompt has {len(places)} more {key} than mm_info has rows")


def _keys(hashes: Sequence[Any] | None, placed: Sequence[_Placed]) -> list[bytes | None]:
    if hashes is None:
        return [None] * len(placed)
    if len(hashes) != len(placed):
        raise MultiMediaError(
            f"{HASHES} has {len(hashes)} tensors, and mm_info {len(placed)} runs of rows"
        )
    keys: list[bytes | None] = []
    for tensor, one in zip(hashes, placed, strict=True):
        state = hashlib.blake2b(digest_size=32, person=b"headrace-mminfo")
        state.update(struct.pack("<q", one.rows))
        for row in _integers(HASHES, tensor):
            state.update(repr(row).encode())
        keys.append(state.digest())
    return keys


def _integers(name: str, tensor: Any) -> list[list[int]]:
    try:
        return read_rows(tensor)
    except TokenIdsError as error:
        raise MultiMediaError(f"{name}: {error}") from error


_Grids = list[tuple[Grid | None, tuple[int, ...]]]


def _grids(
    tensors: Sequence[Any] | None, prompt: Sequence[int], placed: Sequence[_Placed]
) -> _Grids:
    """The grids that positions are of. What no grids give is refused: the engine computes them."""
    if not tensors:
        return [(None, ())] * len(placed)
    axes = _integers(POSITIONS, tensors[0])
    if len(tensors) != 1 or len(axes) != 3 or any(len(axis) != len(prompt) for axis in axes):
        raise MultiMediaError(f"{POSITIONS} must be one tensor [3, {len(prompt)}]")
    found = [
        _grid([axis[one.position : one.position + one.rows] for axis in axes]) for one in placed
    ]
    pieces: list[Any] = []
    end = 0
    for one, (grid, steps) in zip(placed, found, strict=True):
        pieces += [one.position - end, _Run(one.rows, grid, steps)]
        end = one.position + one.rows
    made = rope_positions([*pieces, len(prompt) - end])
    if [list(made.t), list(made.h), list(made.w)] != axes:
        raise MultiMediaError(
            f"{POSITIONS} are not those of a prompt whose items have grids of rows, each item "
            "beginning one above the largest position before it"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """What rope_positions needs of a run of rows."""

    count: int
    grid: Grid | None
    steps: tuple[int, ...]


def _grid(axes: list[list[int]]) -> tuple[Grid | None, tuple[int, ...]]:
    times, rows, columns = axes
    start, count = rows[0], len(rows)
    if times == rows == columns == list(range(start, start + count)) and count > 1:
        return None, ()
    h, w = max(rows) - start + 1, max(columns) - start + 1
    if h < 1 or w < 1 or count % (h * w):
        raise MultiMediaError(f"{POSITIONS} at {count} rows are those of no grid")
    steps = tuple(times[place] - start for place in range(0, count, h * w))
    return Grid(len(steps), h, w), steps

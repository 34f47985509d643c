"""A processed image or clip: its resized pixels, its grid, its identity, its patches."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace import _core
from headrace.media.settings import Settings


class Grid(NamedTuple):
    """Patches over time, height and width."""

    t: int
    h: int
    w: int


@dataclass(frozen=True, slots=True)
class MediaItem:
    """An image, or the sampled frames of a clip, ready for a vision tower. Immutable.

    modality: "image" or "video".
    pixels: RGB bytes [frames, height, width, 3], resized.
    grid: patches; `t` counts groups of temporal_patch_size frames, or tiles.
    table: 768 floats, as bytes: what a byte of each channel becomes.
    llm_grid: rows of the language model over time, height and width; of a tiled item (tiles, 1,
        rows of a tile).
    key: 32 bytes that name the content: equal where patches, grid and positions are.
    second_per_grid: seconds between two groups of frames; 0 for images and where it has no meaning.
    timestamps: seconds into the clip, one per group of frames, where a prompt says them as text.
    tiles: (rows, columns) of a split image, without the whole image that follows; else (0, 0).
    duration: of the clip, in seconds.
    """

    modality: str
    pixels: bytes = field(repr=False)
    frames: int
    height: int
    width: int
    grid: Grid
    patch_size: int
    merge_size: int
    temporal_patch_size: int
    table: bytes = field(repr=False)
    llm_grid: Grid
    key: bytes
    second_per_grid: float = 0.0
    timestamps: tuple[float, ...] = ()
    tiles: tuple[int, int] = (0, 0)
    duration: float = 0.0

    @property
    def rows(self) -> int:
        """Rows of the language model, in all."""
        return self.llm_grid.t * self.llm_grid.h * self.llm_grid.w

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return len(self.pixels) + len(self.table) + 512

    def patches(self, first: int = 0, count: int | None = None) -> memoryview[float]:
        """float32 [rows, values] of the temporal grids (or tiles) from `first` on, in the
        order that towers read (headrace/media.h). Made anew at each call; releases the GIL.
        Raises ValueError for grids that the item doesn't have."""
        last = self.grid.t if count is None else first + count
        if not 0 <= first < last <= self.grid.t:
            raise ValueError(f"grids {first} to {last} of {self.grid.t}")
        size = 3 * self.height * self.width
        start = first * self.temporal_patch_size
        end = min(last * self.temporal_patch_size, self.frames)
        data = _core.normalize_patches(
            memoryview(self.pixels)[start * size : end * size],
            end - start,
            self.height,
            self.width,
            patch_size=self.patch_size,
            merge_size=self.merge_size,
            temporal_patch_size=self.temporal_patch_size,
            table=self.table,
        )
        number = (last - first) * self.grid.h * self.grid.w
        return memoryview(data).cast("f", (number, len(data) // 4 // number))


def content_key(
    settings: Settings,
    modality: str,
    shape: tuple[int, ...],
    times: tuple[float, ...],
    *data: bytes,
) -> bytes:
    """blake2b over everything that decides an item's rows and positions. `data`: its pixels, or
    what a caller vouches with."""
    state = hashlib.blake2b(digest_size=32, person=b"headrace-media-1")
    state.update(settings.digest())
    state.update(modality.encode())
    state.update(struct.pack(f"<{len(shape) + 1}q", len(shape), *shape))
    state.update(struct.pack(f"<q{len(times)}d", len(times), *times))
    for part in data:
        state.update(struct.pack("<q", len(part)))
        state.update(part)
    return state.digest()

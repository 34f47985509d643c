"""What decides how pixels become patches: a family's defaults, a model's files, options."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from headrace.media.sampling import SamplingRule
from headrace.media.sizes import Bounds
from headrace.quoting import quoted

FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALVES = (0.5, 0.5, 0.5)
_LEAST, _MOST = 1e-6, 1e6  # of what pixels are normalised with
_MOST_PIXELS = 1 << 31  # the core's, of a call


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one modality of a model.

    patch_size: a patch's side in pixels. merge_size: a block of patches is this many squared; a
        block is one row of the language model (of a tiled image: tile_merge squared is).
    temporal_patch_size: frames in a patch. temporal_merge_size: patches over time in one row.
    min_pixels, max_pixels: of a resized image or frame, or with `bounds_whole_clip` of all frames.
    cap_pixels: bound a clip's tokens as well, by `cap_tokens` (a frame's where bounds_whole_clip).
    sampling: of a clip's frames; None for images.
    tile: side of the squares that an image is split into; 0: none. longest_edge: before that.
    square: side of the square that every image becomes; 0: its sides are kept alike.
    """

    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int = 1
    max_pixels: int = _MOST_PIXELS
    temporal_merge_size: int = 1
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    rescale_factor: float = 1 / 255
    resample: int = 3
    do_resize: bool = True
    do_rescale: bool = True
    do_normalize: bool = True
    sampling: SamplingRule | None = None
    bounds_whole_clip: bool = False
    cap_pixels: bool = False
    cap_tokens: int = 0
    draw_on_frames: bool = False
    tile: int = 0
    longest_edge: int = 0
    do_split: bool = False
    tile_merge: int = 1
    square: int = 0

    def __post_init__(self) -> None:
        if not _LEAST <= self.rescale_factor <= _MOST:
            raise ValueError(f"rescale_factor must lie in [1e-6, 1e6], got {self.rescale_factor}")
        sides = (self.patch_size, self.merge_size, self.temporal_patch_size, self.tile_merge)
        if not all(1 <= side <= 256 for side in sides):
            raise ValueError(f"patch and merge sizes must lie in [1, 256], got {sides}")
        if not 1 <= self.min_pixels <= self.max_pixels <= _MOST_PIXELS:
            raise ValueError(
                f"min_pixels {quoted(self.min_pixels)} and max_pixels {quoted(self.max_pixels)}: "
                f"1 <= min_pixels <= max_pixels <= {_MOST_PIXELS} must hold"
            )
        if self.resample not in FILTERS:
            raise ValueError(f"resample {quoted(self.resample)} is unknown: use one of {FILTERS}")
        if self.tile and (self.tile > 4096 or self.tile % (self.patch_size * self.tile_merge)):
            raise ValueError(
                f"a tile of {self.tile} pixels: at most 4096, and a multiple of "
                f"{self.patch_size * self.tile_merge} is needed"
            )
        if self.square and (
            self.square > 4096 or self.square % (self.patch_size * self.merge_size)
        ):
            raise ValueError(
                f"a square of {self.square} pixels: at most 4096, and a multiple of "
                f"{self.patch_size * self.merge_size} is needed"
            )
        if self.do_normalize and not all(
            abs(mean) <= _MOST and _LEAST <= std <= _MOST
            for mean, std in zip(self.mean, self.std, strict=True)
        ):
            raise ValueError(
                f"mean {self.mean} and std {self.std} must lie in [-1e6, 1e6] and [1e-6, 1e6]"
            )

    @property
    def is_fixed(self) -> bool:
        """Whether its sizes follow from config.json alone."""
        return self.tile > 0 or self.square > 0

    def bounds(self) -> Bounds:
        return Bounds(self.patch_size * self.merge_size, self.min_pixels, self.max_pixels)

    def clip_bounds(self, frames: int) -> Bounds:
        """The bounds for a clip of so many frames, capped if `cap_pixels` asks for it."""
        bounds = self.bounds()
        if not self.cap_pixels:
            return bounds
        area = bounds.factor * bounds.factor
        least = int(self.min_pixels * 1.05)
        if self.bounds_whole_clip:
            most = frames * max(min(self.cap_tokens * area, self.max_pixels // frames), least)
        else:
            share = int(self.cap_tokens * area * 0.9) * 2 // frames
            most = max(min(self.max_pixels, share), least)
        return replace(bounds, max_pixels=most)

    def table(self) -> bytes:
        """768 floats: what byte b of channel c becomes is at 256 * c + b."""
        values: list[float] = []
        for mean, std in zip(self.mean, self.std, strict=True):
            scale = self.rescale_factor if self.do_rescale else 1.0
            if self.do_normalize:
                # (byte - mean / scale) / (std / scale), each step in float32, as transformers does.
                inverse = _float32(1 / scale)
                shift = _float32(_float32(mean) * inverse)
                divisor = _float32(_float32(std) * inverse)
                values += [_float32(_float32(byte - shift) / divisor) for byte in range(256)]
            else:
                values += [_float32(byte * scale) for byte in range(256)]
        return struct.pack("<768f", *values)

    def digest(self) -> bytes:
        """32 bytes that differ where any field does."""
        text = repr([(item.name, getattr(self, item.name)) for item in fields(self)])
        return hashlib.sha256(text.encode()).digest()


def merged(base: Settings, values: Mapping[str, Any]) -> Settings:
    """`base` with other values of its fields, and of its sampling rule's."""
    own = {item.name for item in fields(Settings)}
    of_rule = {name: value for name, value in values.items() if name not in own}
    changed = replace(base, **{name: value for name, value in values.items() if name in own})
    if not of_rule:
        return changed
    assert base.sampling is not None
    return replace(changed, sampling=replace(base.sampling, **of_rule))


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])

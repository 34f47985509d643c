"""Bounds on what an image or a video may cost. All are checked before the work they bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from headrace.errors import MediaError
from headrace.quoting import quoted

MAX_SIDE = 1 << 20  # the core's, of an image


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What one item may come to; whatever exceeds a limit is a MediaError.

    max_image_bytes, max_video_bytes: of an encoded file, a `data:` URL or a download.
    max_pixels: of an image, or of one frame of a video, before it is resized. Pillow has a limit of
        its own, twice this default: a higher one here changes nothing for encoded images.
    max_frames: of a clip that are used, and of a list of frames.
    max_source_frames: of a clip, used or not; they may all have to be decoded.
    max_source_pixels: of all these frames together: what decoding may cost.
    max_seconds: a clip's duration.
    max_given_bytes: of a clip's frames that are given as arrays or images, all together, before
        they are resized.
    max_item_bytes: of an item's pixels after resizing, all frames together.
    max_rows: of the language model, that an image or clip may take.
    fetch_seconds: for an http(s) address in all, its redirects included.
    """

    max_image_bytes: int = 64 << 20
    max_video_bytes: int = 512 << 20
    max_pixels: int = 89_478_485
    max_frames: int = 768
    max_source_frames: int = 200_000
    max_source_pixels: int = 100_000_000_000
    max_seconds: float = 7200.0
    max_given_bytes: int = 2 << 30
    max_item_bytes: int = 2 << 30
    max_rows: int = 1 << 31
    fetch_seconds: float = 30.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            kinds = (int, float) if item.type == "float" else (int,)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise TypeError(f"{item.name} must be a number, got {quoted(value)}")
            if not 0 < value < math.inf:
                raise ValueError(f"{item.name} must be above 0 and finite, got {quoted(value)}")

    def check_size(self, height: Any, width: Any) -> None:
        """The size of an image or of a frame that is about to be decoded."""
        if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
            raise MediaError(f"its size is {quoted(width)} x {quoted(height)} pixels")
        if height * width > self.max_pixels or max(height, width) > MAX_SIDE:
            raise MediaError(
                f"it has {width} x {height} pixels, more than max_pixels ({self.max_pixels}), or a "
                f"side above {MAX_SIDE}: make it smaller"
            )

    def check_clip(self, frames: int, height: int, width: int, fps: float) -> None:
        """The number of a clip's frames, as it is known so far."""
        if frames > self.max_source_frames:
            raise MediaError(
                f"it has more than max_source_frames ({self.max_source_frames}) frames"
            )
        if frames * height * width > self.max_source_pixels:
            raise MediaError(
                f"its {frames} frames or more of {width} x {height} pixels exceed "
                f"max_source_pixels ({self.max_source_pixels})"
            )
        if frames / fps > self.max_seconds:
            raise MediaError(f"it lasts longer than max_seconds ({self.max_seconds})")

    def check_given(self, frames: int, height: int, width: int) -> None:
        """Frames that are about to be copied: an array may say that it is larger than any
        memory."""
        if 3 * frames * height * width > self.max_given_bytes:
            raise MediaError(
                f"its {frames} frames of {width} x {height} pixels are "
                f"{3 * frames * height * width} bytes, more than max_given_bytes "
                f"({self.max_given_bytes}): give fewer or smaller frames"
            )

    def check_bytes(self, count: int, modality: str) -> None:
        most = self.max_bytes(modality)
        if count > most:
            raise MediaError(f"it has {count} bytes, more than max_{modality}_bytes ({most})")

    def max_bytes(self, modality: str) -> int:
        return self.max_video_bytes if modality == "video" else self.max_image_bytes

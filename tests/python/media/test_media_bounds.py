"""Files that would cost more to decode than their first bytes say."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from media_support import processor

pytest.importorskip("PIL", reason="needs Pillow")
from PIL import Image

from headrace.errors import MediaError
from headrace.media import MediaLimits
from headrace.media.clips import decode_clip
from headrace.media.pictures import decode_picture


def gif(*sizes: tuple[int, int]) -> bytes:
    """Frames of one pixel each, on a screen of 1 x 1, that reach as far as `sizes`."""
    body = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
    for width, height in sizes:
        body += b"," + struct.pack("<HHHHB", width - 1, height - 1, 1, 1, 0) + b"\2\2\x4c\1\0"
    return body + b";"


def all_frames(total: int, fps: float) -> list[int]:
    return list(range(total))


def test_a_gif_whose_frames_grow() -> None:
    grows = gif((1, 1), (60, 50))
    assert decode_clip(grows, MediaLimits(), all_frames).total == 2
    with pytest.raises(MediaError, match="60 x 50 pixels, more than max_pixels"):
        decode_clip(grows, MediaLimits(max_pixels=2999), all_frames)
    with pytest.raises(MediaError, match="max_source_pixels"):
        decode_clip(grows, MediaLimits(max_source_pixels=5999), all_frames)


def test_a_gifs_frames_are_not_counted_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL.GifImagePlugin import GifImageFile

    seen: list[int] = []
    real = GifImageFile._seek

    def counted(self: Any, frame: int, *arguments: Any) -> None:
        seen.append(frame)
        real(self, frame, *arguments)

    monkeypatch.setattr(GifImageFile, "_seek", counted)
    with pytest.raises(MediaError, match="max_source_frames"):
        decode_clip(gif(*[(1, 1)] * 50), MediaLimits(max_source_frames=5), all_frames)
    assert max(seen) <= 6


def test_icons_are_refused() -> None:
    out = io.BytesIO()
    Image.new("RGB", (32, 32)).save(out, "ICO")
    with pytest.raises(MediaError, match="no image of a known format"):
        decode_picture(out.getvalue(), MediaLimits())


def test_more_frames_than_there_could_be() -> None:
    with pytest.raises(MediaError, match=r"^video: .*frames are asked for"):
        processor("qwen3_vl").video(gif((1, 1), (1, 1)), options={"num_frames": 1 << 31})

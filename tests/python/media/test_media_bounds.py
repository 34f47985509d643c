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


def jpeg(**more: Any) -> bytes:
    out = io.BytesIO()
    Image.radial_gradient("L").convert("RGB").save(out, "JPEG", **more)
    return out.getvalue()


def test_scans_of_a_jpeg_are_bounded() -> None:
    data = jpeg(progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    own = data.count(b"\xff\xda")
    assert 1 < own < 32
    most = data[:-2] + last * (32 - own)
    assert decode_picture(most + b"\xff\xd9", MediaLimits()).height == 256
    for hidden in (b"", b"\xff\x01\xff\xff", b"\xff\xda\xff\xff"):
        with pytest.raises(MediaError, match="scans, more than 32"):
            decode_picture(most + hidden + last + b"\xff\xd9", MediaLimits())
    # What lies behind the only scan is not decoded: phones put clips there.
    assert decode_picture(jpeg() + last * 99, MediaLimits()).height == 256


def test_more_frames_than_there_could_be() -> None:
    with pytest.raises(MediaError, match=r"^video: .*frames are asked for"):
        processor("qwen3_vl").video(gif((1, 1), (1, 1)), options={"num_frames": 1 << 31})

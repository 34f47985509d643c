"""Files that would cost more to decode than their first bytes say."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
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


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """One of 4 x 4 pixels, with chunks before its data."""
    head = (b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in (head, *chunks, (b"IDAT", zlib.compress(bytes(13 * 4))), (b"IEND", b"")):
        check = zlib.crc32(kind + body)
        data += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)
    return data


def run_bmp(pieces: int, width: int = 4, height: int = 4) -> bytes:
    """Each row a run of one pixel and the end of the row, behind so many rows that go nowhere."""
    runs = b"\0\2\0\0" * pieces + b"\1\0\0\0" * height
    size = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    head = struct.pack("<IHHI", 14 + 40 + 1024 + len(runs), 0, 0, 14 + 40 + 1024)
    return b"BM" + head + size + bytes(1024) + runs


_PIECES: dict[str, Callable[[int], bytes]] = {
    "comments of a jpeg": lambda n: jpeg()[:2] + b"\xff\xfe\x00\x02" * n + jpeg()[2:],
    "fill bytes of a jpeg": lambda n: jpeg()[:2] + b"\xff" * n + jpeg()[2:],
    "texts of a png": lambda n: png(*[(b"tEXt", b"")] * n),
    "unknown chunks of a png": lambda n: png(*[(b"qrSt", b"")] * n),
    "runs of a bmp": run_bmp,
}


@pytest.mark.parametrize("name", _PIECES)
def test_files_of_very_many_pieces_are_refused(name: str) -> None:
    """Pillow goes through these in Python: seconds per megabyte."""
    assert decode_picture(_PIECES[name](100), MediaLimits()).width > 0
    with pytest.raises(MediaError, match="too many small pieces"):
        decode_picture(_PIECES[name](30_000), MediaLimits())


_SLOW: dict[str, Callable[[int], bytes]] = {
    "text": lambda n: b"P3 4 %d 255\n" % n + b"1 " * 12 * n,
    "odd levels": lambda n: b"P6 4 %d 100\n" % n + bytes(12 * n),
    "runs": lambda n: run_bmp(0, 4 * n, 1),
}


@pytest.mark.parametrize("name", _SLOW)
def test_what_pillow_decodes_in_python_is_small(name: str) -> None:
    assert decode_picture(_SLOW[name](100), MediaLimits()).width > 0
    with pytest.raises(MediaError, match="save it anew"):
        decode_picture(_SLOW[name](70_000), MediaLimits())


def test_pieces_of_animations_are_bounded_too() -> None:
    usual = gif(*[(1, 1)] * 500)
    assert decode_clip(usual, MediaLimits(), all_frames).total == 500
    comments = b"\x21\xfe" + b"\1a" * 60_000 + b"\0"
    with pytest.raises(MediaError, match="too many small pieces"):
        decode_clip(usual[:19] + comments + usual[19:], MediaLimits(), all_frames)


@pytest.mark.parametrize("modality", ["image", "video"])
def test_rows_are_counted_before_pixels_are_made(modality: str) -> None:
    """A few bytes and options of one prompt would ask for gigabytes, to be refused behind."""
    limits = MediaLimits(max_rows=1000)
    made = processor("qwen2_5_vl", limits=limits)
    source = np.zeros((2, 8, 8, 3) if modality == "video" else (8, 8, 3), np.uint8)
    options = {f"{modality}_min_pixels": 1 << 28, f"{modality}_max_pixels": 1 << 28}
    tracemalloc.start()
    try:
        with pytest.raises(MediaError, match=r"takes \d+ tokens, more than the 1000"):
            getattr(made, modality)(source, options=options)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    few = {f"{modality}_min_pixels": 28 * 28 * 900, f"{modality}_max_pixels": 28 * 28 * 1000}
    assert 900 <= getattr(made, modality)(source, options=few).rows <= 1000


def test_clips_larger_than_memory_are_refused_by_their_size() -> None:
    """A broadcast array says that it is large without being so: nothing of it is copied."""
    frame = np.zeros((1, 2880, 2880, 3), np.uint8)
    huge = np.broadcast_to(frame, (768, 2880, 2880, 3))
    assert huge.nbytes > 19_000_000_000
    small = np.zeros((28, 28, 3), np.uint8)
    whole = processor("qwen2_vl")
    tracemalloc.start()
    try:
        for clip in (huge, [frame[0]] * 768, [Image.fromarray(frame[0])] * 768):
            with pytest.raises(MediaError, match=r"more than max_given_bytes \(2147483648\)"):
                whole.video(clip)
        with pytest.raises(MediaError, match="frame 1 differs in size from the first one"):
            whole.video([small, *[frame[0]] * 700])
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    bounded = processor("qwen2_vl", limits=MediaLimits(max_given_bytes=3 * 28 * 28 * 2))
    assert bounded.video(np.zeros((2, 28, 28, 3), np.uint8)).frames == 2
    with pytest.raises(MediaError, match="max_given_bytes"):
        bounded.video(np.zeros((3, 28, 28, 3), np.uint8))

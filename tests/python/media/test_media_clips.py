"""Clips: of frames, of animations, of files; times that are drawn on frames."""

from __future__ import annotations

import io
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from media_support import encoded, frames, model_settings, processor

from headrace.errors import MediaError
from headrace.media import Grid, MediaLimits, MediaProcessor, clips
from headrace.media.pictures import Picture
from headrace.media.stamps import Stamper

Image = pytest.importorskip("PIL.Image")


def test_clips_of_frames() -> None:
    pixels = frames(5, 112, 140)
    qwen = processor("qwen2_5_vl").video(pixels)
    assert (qwen.frames, qwen.grid, qwen.second_per_grid) == (5, Grid(3, 22, 26), 1.0)
    assert qwen.patches(2).shape == (22 * 26, 1176)
    assert bytes(qwen.patches(1)) == bytes(qwen.patches(1, 1)) + bytes(qwen.patches(2))
    ernie = processor("ernie4_5_vl").video(list(pixels))
    assert ernie.frames == ernie.grid.t == 6
    assert ernie.llm_grid.t == 3
    assert ernie.rows == ernie.grid.t * ernie.grid.h * ernie.grid.w // 8
    timed = processor("qwen3_vl").video([Image.fromarray(frame) for frame in pixels], fps=1.0)
    assert timed.timestamps == (0.5, 2.5, 4.0)
    tiled = processor("smolvlm").video(pixels)
    assert (tiled.grid, tiled.llm_grid) == (Grid(5, 4, 4), Grid(5, 1, 4))
    with pytest.raises(MediaError, match="differs in size"):
        processor("qwen2_vl").video([pixels[0], pixels[1, :56]])
    for source in ([], 5, b"", pixels[0], {}):
        with pytest.raises(MediaError):
            processor("qwen2_vl").video(source)
    with pytest.raises(ValueError, match="fps must lie"):
        processor("qwen2_vl").video(pixels, fps=0)


def test_animated_clips() -> None:
    pixels = [Image.fromarray(frame) for frame in frames(12, 112, 112)]
    data = encoded(pixels[0], "WEBP", save_all=True, append_images=pixels[1:], duration=250)
    item = processor("qwen2_vl").video(data)
    assert (item.frames, item.duration) == (6, 3.0)
    with pytest.raises(MediaError, match="max_source_frames"):
        processor("qwen2_vl", limits=MediaLimits(max_source_frames=9)).video(data)
    with pytest.raises(MediaError, match="max_seconds"):
        processor("qwen2_vl", limits=MediaLimits(max_seconds=2)).video(data)


def video_file(count: int, rate: int = 10, size: int = 64) -> bytes:
    av = pytest.importorskip("av")
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        for number in range(count):
            level = np.full((size, size, 3), 10 * number % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(level, format="rgb24")))
        container.mux(stream.encode())
    return out.getvalue()


def test_files_of_video() -> None:
    made = processor("qwen3_vl", limits=MediaLimits(max_frames=100))
    item = made.video(video_file(21))
    assert (item.frames, item.duration) == (4, 2.1)
    size = 3 * item.height * item.width
    means = [np.mean(list(item.pixels[i * size : (i + 1) * size])) for i in range(4)]
    for mean, index in zip(means, (0, 7, 13, 20), strict=True):
        assert abs(mean - 10 * index) < 4
    assert item.timestamps == (0.35, 1.65)


def test_a_container_that_promises_more_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    made = processor("qwen3_vl")
    data = video_file(21)
    honest = made.video(data)
    monkeypatch.setattr(clips._Reader, "count_packets", lambda reader: 60)
    assert made.video(data).key == honest.key


def test_broken_files_of_video() -> None:
    made = processor("qwen2_vl")
    data = video_file(30)
    for bad in (
        b"x" * 100,
        data[:200],
        data[: len(data) // 2],
        b"#EXTM3U\nhttp://127.0.0.1/a.ts\n",
    ):
        with pytest.raises(MediaError, match=r"^video: "):
            made.video(bad)
    with pytest.raises(MediaError, match="max_source_frames"):
        processor("qwen2_vl", limits=MediaLimits(max_source_frames=20)).video(data)
    with pytest.raises(MediaError, match="more than max_pixels"):
        processor("qwen2_vl", limits=MediaLimits(max_pixels=64)).video(data)


def test_playlists_reach_nothing() -> None:
    pytest.importorskip("av")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/a.ts"
        hls = f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{url}\n#EXT-X-ENDLIST\n"
        base = f"<BaseURL>{url}</BaseURL>"
        dash = f'<?xml version="1.0"?><MPD><Period>{base}</Period></MPD>'
        for text in (hls, f"ffconcat version 1.0\nfile '{url}'\n", dash, f"v=0\nc=IN IP4 {url}\n"):
            with pytest.raises(MediaError, match="no video that can be read"):
                processor("qwen2_vl").video(text.encode())
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_times_need_a_font() -> None:
    model = model_settings("ernie4_5_vl")
    drawing = replace(model, video=replace(model.video, draw_on_frames=True))
    with pytest.raises(MediaError, match=r"Roboto-Regular\.ttf"):
        MediaProcessor(drawing).video(frames(2, 112, 112))
    made = MediaProcessor(drawing, options={"draw_on_frames": False})
    assert made.video(frames(2, 112, 112)).frames == 2


def test_times_are_drawn(tmp_path: Path) -> None:
    font = tmp_path / "font.ttf"
    font.write_bytes(pytest.importorskip("PIL.ImageFont").load_default(20).font_bytes)
    stamper = Stamper(font)
    grey = Picture(200, 300, bytes([128]) * (3 * 200 * 300))
    first, again, later = (stamper.draw(grey, seconds) for seconds in (0.5, 0.5, 7.5))
    assert first.rgb == again.rgb
    assert first.rgb != later.rgb
    pixels = np.frombuffer(first.rgb, np.uint8).reshape(200, 300, 3)
    assert (pixels[40:] == 128).all()
    assert pixels[:40].min() == 0
    assert pixels[:40].max() == 255
    with pytest.raises(MediaError, match="too small"):
        stamper.draw(Picture(9, 9, bytes(243)), 0.0)
    font.write_bytes(b"no font")
    with pytest.raises(MediaError, match="font"):
        Stamper(font).draw(grey, 0.0)

"""Items that are fetched, beside those that are at hand."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

import pytest
from media_support import model_settings

pytest.importorskip("PIL", reason="needs Pillow")
from PIL import Image

from headrace.errors import EngineError, MediaError
from headrace.media import clips
from headrace.media import processor as processors
from headrace.media.parts import MediaPart
from headrace.media.requests import loading
from headrace.media.requests.loading import FETCHES, THREADS
from headrace.media.requests.reader import MediaReader
from headrace.media.sources import load

FAR = MediaPart("image", "https://example.com/a.png")


def png() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (28, 28)).save(out, "PNG")
    return out.getvalue()


class SlowWeb:
    """Answers when it is let to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.asked = threading.Semaphore(0)
        self.decoding = self.most_decoding = 0
        self._lock = threading.Lock()
        self._decode = processors.decode_picture
        monkeypatch.setattr(load, "fetch", self.fetch)
        monkeypatch.setattr(processors, "decode_picture", self.decode)

    def fetch(self, *_: Any) -> bytes:
        self.asked.release()
        assert self.answers.wait(60)
        return png()

    def decode(self, *arguments: Any) -> Any:
        with self._lock:
            self.decoding += 1
            self.most_decoding = max(self.most_decoding, self.decoding)
        time.sleep(0.005)
        with self._lock:
            self.decoding -= 1
        return self._decode(*arguments)


def test_slow_servers_hold_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    web = SlowWeb(monkeypatch)
    reader = MediaReader(model_settings("qwen2_5_vl"), limits={"image": 99})
    try:
        far = reader.begin([FAR] * (FETCHES + 8))
        for _ in range(FETCHES):
            assert web.asked.acquire(timeout=60)
        near = reader.begin([MediaPart("image", png())] * 3)
        assert [item.grid for item in near.items()] == [(1, 4, 4)] * 3
        assert not web.answers.is_set()
        web.answers.set()
        assert [item.grid for item in far.items()] == [(1, 4, 4)] * (FETCHES + 8)
        assert 1 <= web.most_decoding <= THREADS
    finally:
        web.answers.set()
        reader.close()


def test_what_is_fetched_when_the_reader_closes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    web = SlowWeb(monkeypatch)
    reader = MediaReader(model_settings("qwen2_5_vl"), limits={"image": 99})
    far = reader.begin([FAR] * (FETCHES + 8))
    assert web.asked.acquire(timeout=60)
    reader.close()
    web.answers.set()
    with pytest.raises(EngineError, match="closed"):
        far.items()
    with pytest.raises(EngineError, match="closed"):
        reader.begin([FAR])


def test_decoding_that_is_cancelled_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    web = SlowWeb(monkeypatch)
    web.answers.set()
    monkeypatch.setattr(loading, "THREADS", 1)
    reader = MediaReader(model_settings("qwen2_5_vl"), limits={"image": 99})
    begun, go_on = threading.Event(), threading.Event()

    def hold(*_: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        raise ValueError("held")

    monkeypatch.setattr(processors, "decode_picture", hold)
    far = reader.begin([FAR] * 4)
    assert begun.wait(60)
    for _ in range(4):
        assert web.asked.acquire(timeout=60)
    time.sleep(0.05)  # for the others to queue behind it; without that, the test is a weaker one
    reader.close()
    go_on.set()
    with pytest.raises((EngineError, ValueError), match=r"closed|held"):
        far.items()


def test_a_clip_that_nobody_waits_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    frames = [Image.new("RGB", (28, 28), (value, 0, 0)) for value in range(200)]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=100)
    seeks: list[int] = []
    begun, dropped = threading.Event(), threading.Event()
    real = clips._has_frame

    def has_frame(image: Any, number: int) -> bool:
        seeks.append(number)
        begun.set()
        assert dropped.wait(60)
        return real(image, number)

    monkeypatch.setattr(clips, "_has_frame", has_frame)
    reader = MediaReader(model_settings("qwen2_5_vl"))
    try:
        clip = reader.begin([MediaPart("video", out.getvalue())])
        assert begun.wait(60)
        clip.cancel()
        dropped.set()
        with pytest.raises(MediaError, match=r"^video 1 of 1: nobody waits for it any more"):
            clip.items()
        assert seeks == [0]
        assert len(reader.begin([MediaPart("video", out.getvalue())]).items()) == 1
    finally:
        dropped.set()
        reader.close()

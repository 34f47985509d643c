"""Content parts, multimodal_data, limits; and hostile ones at random."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from media_support import ROOT, picture  # noqa: F401

from headrace.media import MediaPart, check_counts, read_limits, read_multimodal_data, read_part

URL = "https://example.com/a.png"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "a"}, None),
        ({"type": "image_url", "image_url": {"url": URL}}, MediaPart("image", URL)),
        ({"type": "image_url", "image_url": URL}, MediaPart("image", URL)),
        (
            {"type": "image_url", "image_url": {"url": URL, "detail": "auto"}, "uuid": "u"},
            MediaPart("image", URL, "u"),
        ),
        ({"type": "image_url", "image_url": None, "uuid": "u"}, MediaPart("image", None, "u")),
        ({"type": "image", "uuid": "u"}, MediaPart("image", None, "u")),
        ({"type": "image", "image": b"x"}, MediaPart("image", b"x")),
        (
            {"type": "video_url", "video_url": {"url": URL}, "fps": 1},
            MediaPart("video", URL, None, {"fps": 1}),
        ),
        (
            {"type": "video", "video": {"video": b"x", "max_frames": 30}},
            MediaPart("video", b"x", None, {"max_frames": 30}),
        ),
    ],
)
def test_parts(part: Any, expected: MediaPart | None) -> None:
    assert read_part(part) == expected


@pytest.mark.parametrize(
    ("part", "error", "words"),
    [
        ("text", TypeError, "must be a dict"),
        ({}, ValueError, "Unknown content part type"),
        ({"type": "audio_url"}, ValueError, "Unknown content part type: 'audio_url'"),
        ({"type": ["image"]}, ValueError, "Unknown content part type"),
        ({"type": "image_url"}, ValueError, "Both image_url and uuid are missing"),
        ({"type": "video_url", "video_url": {}}, ValueError, "Both video_url and uuid"),
        ({"type": "image_url", "image_url": {"url": 5}}, TypeError, "an address of type str"),
        ({"type": "image_url", "image_url": {"uri": URL}}, ValueError, "has no 'uri'"),
        ({"type": "image", "image": b"x", "fps": 1}, ValueError, "has no 'fps'"),
        ({"type": "image", "image": {"video": b"x"}}, TypeError, "is no image"),
        ({"type": "video", "video": {"clip": b"x"}}, TypeError, "needs the key 'video'"),
        ({"type": "image", "image": b"x", "uuid": 5}, TypeError, "uuid must be a str"),
    ],
)
def test_bad_parts(part: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_part(part)


def test_detail_is_told_to_have_no_effect() -> None:
    with pytest.warns(UserWarning, match="detail 'high' has no effect"):
        read_part({"type": "image_url", "image_url": {"url": URL, "detail": "high"}})


def test_multimodal_data() -> None:
    frame = np.zeros((4, 4, 3), np.uint8)
    data = {"video": [b"v", {"video": b"w", "fps": 1}], "image": b"i"}
    assert read_multimodal_data(data) == [
        MediaPart("image", b"i"),
        MediaPart("video", b"v"),
        MediaPart("video", b"w", None, {"fps": 1}),
    ]
    assert read_multimodal_data(None) == read_multimodal_data({"image": None}) == []
    (clip,) = read_multimodal_data({"video": [frame, frame]})
    assert len(clip.source) == 2
    clips = read_multimodal_data({"video": [np.zeros((2, 4, 4, 3), np.uint8)] * 2})
    assert len(clips) == 2
    for bad in ([], {"audio": []}, {"video": [{"video": b"x", "speed": 2}]}):
        with pytest.raises((TypeError, ValueError)):
            read_multimodal_data(bad)


def test_counts() -> None:
    parts = [MediaPart("image", b"")] * 2 + [MediaPart("video", b"")]
    check_counts(parts, {"image": 2})
    with pytest.raises(ValueError, match="Too many image items in prompt, got 2 but limit is 1"):
        check_counts(parts)
    with pytest.raises(ValueError, match="Too many video items in prompt, got 1 but limit is 0"):
        check_counts(parts, {"image": 2, "video": 0})
    assert read_limits({"image": 4, "audio": 1}) == {"image": 4, "video": 1, "audio": 1}
    for bad in (5, {"image": -1}, {"image": "4"}, {"image": True}, {"text": 1}):
        with pytest.raises((TypeError, ValueError), match="limit_mm_per_prompt"):
            read_limits(bad)


def test_the_fuzzer_finds_nothing() -> None:
    """A hundred of each kind of tests/fuzz/fuzz_media.py."""
    import sys

    sys.path.insert(0, str(ROOT / "tests/fuzz"))
    import fuzz_media

    seed = random.randrange(1 << 32)
    assert fuzz_media.run_all(120, seed) == []

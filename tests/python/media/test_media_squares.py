"""Images that all become squares of one size (Gemma 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_support import picture
from PIL import Image

from headrace.errors import MediaError
from headrace.media import MediaProcessor, read_model_settings

CONFIG = {
    "model_type": "gemma3",
    "mm_tokens_per_image": 16,
    "vision_config": {"patch_size": 8, "image_size": 64},
}
HOW = {"size": {"height": 64, "width": 64}, "do_pan_and_scan": None, "image_seq_length": 16}


def write(folder: Path, config: dict[str, Any], processor: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "preprocessor_config.json").write_text(json.dumps(HOW | processor))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, {}, {})


def test_any_shape_becomes_a_square(folder: Path) -> None:
    processor = MediaProcessor(read_model_settings(folder))
    pixels = picture("noise", 90, 40)
    item = processor.image(pixels)
    assert (item.grid, item.llm_grid, item.rows) == ((1, 8, 8), (1, 4, 4), 16)
    assert (item.merge_size, item.tiles) == (2, (0, 0))
    # Later Pillows than 12 resize in another order.
    expected = np.asarray(Image.fromarray(pixels).resize((64, 64), Image.Resampling.BILINEAR))
    got = np.frombuffer(item.pixels, np.uint8).reshape(64, 64, 3)
    assert np.abs(got.astype(int) - expected).max() <= 1
    strip = processor.image(np.zeros((1, 300, 3), np.uint8))
    assert strip.rows == 16


def test_published_sizes(tmp_path: Path) -> None:
    vision = {"patch_size": 14, "image_size": 896}
    write(tmp_path, {"mm_tokens_per_image": 256, "vision_config": vision}, {"size": None})
    image = read_model_settings(tmp_path).image
    assert (image.square, image.patch_size, image.merge_size) == (896, 14, 4)


def test_a_size_must_be_the_towers(folder: Path) -> None:
    settings = read_model_settings(folder)
    MediaProcessor(settings, {"size": {"height": 64, "width": 64}})
    for size in ({"height": 64, "width": 32}, {"shortest_edge": 64, "longest_edge": 64}):
        with pytest.raises(ValueError, match=r"size is \{'height': 64, 'width': 64\}"):
            MediaProcessor(settings, {"size": size})
    write(folder, {}, {"size": {"height": 32, "width": 64}})
    with pytest.raises(
        MediaError, match=r"preprocessor_config.json: size is .*image_size of config.json is 64"
    ):
        read_model_settings(folder)


def test_without_resizing_it_must_fit(folder: Path) -> None:
    processor = MediaProcessor(read_model_settings(folder), {"do_resize": False})
    assert processor.image(picture("noise", 64, 64)).rows == 16
    with pytest.raises(MediaError, match=r"64 x 32 pixels and do_resize is off.*takes 64 x 64"):
        processor.image(picture("noise", 32, 64))


def test_no_clips(folder: Path) -> None:
    with pytest.raises(MediaError, match="clip 1: this model takes no clips"):
        MediaProcessor(read_model_settings(folder)).video(
            np.zeros((4, 64, 64, 3), np.uint8), name="clip 1"
        )


def test_no_pan_and_scan(folder: Path) -> None:
    settings = read_model_settings(folder)
    assert MediaProcessor(settings, {"do_pan_and_scan": False}).image(picture("slope", 8, 8))
    with pytest.raises(ValueError, match="do_pan_and_scan: images are taken whole"):
        MediaProcessor(settings, {"do_pan_and_scan": True})
    with pytest.raises(TypeError, match="do_pan_and_scan must be a bool"):
        MediaProcessor(settings, {"do_pan_and_scan": 1})
    with pytest.raises(ValueError, match="become 64 x 64 pixels: min_pixels"):
        MediaProcessor(settings, {"max_pixels": 1000})
    write(folder, {}, {"do_pan_and_scan": True})
    with pytest.raises(MediaError, match=r"preprocessor_config\.json: do_pan_and_scan is True"):
        read_model_settings(folder)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"vision_config": {"patch_size": 8, "image_size": 8192}}, "at most 4096"),
        ({"vision_config": {"patch_size": 8, "image_size": 68}}, "multiple of 16"),
        ({"mm_tokens_per_image": 0}, "at least 1"),
        ({"mm_tokens_per_image": "16"}, "whole number"),
    ],
)
def test_bad_sizes(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(MediaError, match=words):
        read_model_settings(write(tmp_path, config, {}))

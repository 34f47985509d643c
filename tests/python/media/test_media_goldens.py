"""Pixels, grids, frames, positions and prompts against transformers (tests/golden/media)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from media_rows import rows_of
from media_support import GOLDEN, frames, model_settings, picture, processor

from headrace.media import (
    Grid,
    MediaItem,
    MediaProcessor,
    RopePositions,
    Rows,
    item_pieces,
    rope_positions,
)
from headrace.media.sampling import SamplingRule, frame_indices
from headrace.media.sizes import Bounds, clip_size


def digest(values: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def bytes_of(item: MediaItem) -> np.ndarray[Any, Any]:
    """An item's patches as the bytes that its table made floats of: [rows, channel, rest]."""
    patches = np.asarray(item.patches())
    table = np.frombuffer(item.table, np.float32).reshape(3, 256)
    by_channel = patches.reshape(len(patches), 3, -1)
    found = [np.searchsorted(table[c], by_channel[:, c]) for c in range(3)]
    return np.stack(found, axis=1).astype(np.uint8)


def test_images() -> None:
    assert len(GOLDEN["images"]) > 60
    for case in GOLDEN["images"]:
        family, *small = case["processor"].split()
        options = {"image_max_pixels": 6272} if small else None
        item = processor(family, options=options).image(picture(*case["picture"]))
        assert list(item.grid) == case["grid"], case
        assert digest(bytes_of(item)) == case["patches"], case
        # The processors that use Pillow don't fuse: the bound is that of the formulas.
        last = np.asarray(item.patches())[-1, ::97]
        np.testing.assert_allclose(last, case["floats"], rtol=0, atol=5e-7)
        assert item.rows == item.grid.t * item.grid.h * item.grid.w // 4


def test_tiled_images() -> None:
    for case in GOLDEN["tiled"]:
        longest, tile, split = case["sides"]
        model = model_settings("smolvlm")
        image = replace(model.image, tile=tile, longest_edge=longest, do_split=split)
        item = MediaProcessor(replace(model, image=image)).image(picture(*case["picture"]))
        assert list(item.tiles) == case["tiles"], case
        assert item.frames == case["count"], case
        assert hashlib.sha256(item.pixels).hexdigest() == case["pixels"], case
        assert item.rows == item.frames * (tile // 16) ** 2


def test_sampling() -> None:
    rules = {
        "qwen2": SamplingRule("qwen2", 2.0, 4, 768),
        "qwen3": SamplingRule("qwen3", 2.0, 4, 768),
        "smolvlm": SamplingRule("smolvlm", 1.0, 1, 64),
    }
    assert len(GOLDEN["sampling"]) == 20
    for case in GOLDEN["sampling"]:
        assert frame_indices(rules[case["rule"]], *case["clip"]) == case["indices"], case


def test_clip_patches() -> None:
    for case in GOLDEN["clip_patches"]:
        count, height, width = case["frames"]
        item = processor(case["family"], options={"do_resize": False}).video(
            frames(count, height, width)
        )
        assert list(item.grid) == case["grid"]
        assert digest(bytes_of(item)) == case["patches"], case


def test_clip_sizes() -> None:
    for case in GOLDEN["clip_sizes"]:
        assert list(clip_size(*case["clip"], Bounds(*case["bounds"]), 2)) == case["size"], case


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "ernie4_5_vl"])
def test_positions(family: str) -> None:
    cases = [case for case in GOLDEN["positions"] if case["family"] == family]
    assert len(cases) == 5
    for case in cases:
        found = positions(family, case["pieces"])
        assert [list(found.t), list(found.h), list(found.w)] == case["positions"], case["prompt"]
        assert found.delta == case["delta"]


def positions(family: str, pieces: list[Any], second_per_grid: float = 0.75) -> RopePositions:
    model = model_settings(family)
    spans: list[int | Rows] = []
    for piece in pieces:
        if isinstance(piece, int):
            spans.append(piece)
            continue
        modality, grid = piece
        item = rows_of(modality, Grid(*grid), model, second_per_grid)
        for part in item_pieces(item, model):
            if isinstance(part, Rows):
                spans += [1, part] if modality == "video" and family == "qwen3_vl" else [part]
    return rope_positions(spans)


def test_prompts_of_tiled_images() -> None:
    model = model_settings("smolvlm")
    for case in GOLDEN["prompts"]:
        rows, columns = case["tiles"]
        item = rows_of("image", Grid(rows * columns + 1, 4, 4), model, 0.0)
        item = replace(item, tiles=(rows, columns), llm_grid=Grid(rows * columns + 1, 1, 4))
        pieces = item_pieces(item, model)
        text = "".join(p if isinstance(p, str) else p.pad * p.count for p in pieces)
        assert text == case["text"]
        runs = [piece for piece in pieces if isinstance(piece, Rows)]
        assert [run.first for run in runs] == list(range(0, item.rows, 4))

"""Sizes, frames, positions and options, by vectors and by their errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from media_rows import rows_of
from media_support import model_settings

from headrace.errors import MediaError
from headrace.media import Grid, Rows, item_pieces, lay_out, rope_positions
from headrace.media.layout import time_steps
from headrace.media.options import with_options
from headrace.media.sampling import SamplingRule, frame_indices
from headrace.media.settings import HALVES, Settings
from headrace.media.sizes import Bounds, image_size, longest_edge_size
from headrace.media.stamps import clock, number_in_words

QWEN = Bounds(28, 3136, 12845056)
ERNIE = Bounds(28, 3136, 4842768)
QWEN3 = Bounds(32, 65536, 16777216)


@pytest.mark.parametrize(
    ("size", "qwen", "ernie", "qwen3"),
    [
        ((1, 1), (56, 56), (56, 56), (256, 256)),
        ((10, 2000), (28, 812), (28, 812), (32, 3648)),
        ((13, 400), (28, 336), (28, 336), (64, 1440)),
        ((42, 70), (56, 56), (56, 56), (224, 352)),
        ((98, 70), (112, 56), (112, 56), (320, 224)),
        ((500, 333), (504, 336), (504, 336), (512, 320)),
        ((480, 640), (476, 644), (476, 644), (480, 640)),
        ((1080, 1920), (1092, 1932), (1092, 1932), (1088, 1920)),
        ((2160, 3840), (2156, 3836), (1624, 2912), (2176, 3840)),
        ((6000, 8000), (3080, 4116), (1904, 2520), (3520, 4704)),
    ],
)
def test_image_sizes(size: Any, qwen: Any, ernie: Any, qwen3: Any) -> None:
    assert image_size(*size, QWEN) == qwen
    assert image_size(*size, ERNIE) == ernie
    assert image_size(*size, QWEN3) == qwen3


def test_strips_are_refused() -> None:
    assert image_size(1, 200, QWEN)
    with pytest.raises(MediaError, match="200 times as long"):
        image_size(1, 201, QWEN)


def test_longest_edges() -> None:
    assert longest_edge_size(40, 50, 2048) == (1638, 2048)
    assert longest_edge_size(3, 1000, 2048) == (6, 2048)
    assert longest_edge_size(1000, 3, 512) == (512, 2)


ERNIE_RULE = SamplingRule("ernie", 2.0, 16, 180)


@pytest.mark.parametrize(
    ("rule", "clip", "count", "begins"),
    [
        (ERNIE_RULE, (10, 5.0), 10, list(range(10))),
        (ERNIE_RULE, (100, 25.0), 16, [0, 6, 12, 18, 25, 31, 37, 43]),
        (ERNIE_RULE, (300, 29.97), 20, [0, 15, 30, 45]),
        (ERNIE_RULE, (20000, 25.0), 180, [0, 111, 222, 333]),
        (replace(ERNIE_RULE, frames_sample="middle"), (300, 30.0), 20, [8, 22, 38, 52, 68, 82]),
        (SamplingRule("qwen2", 2.0, 4, 768), (10, 5.0), 4, [0, 2, 5, 7]),
        (SamplingRule("qwen2", 2.0, 4, 768), (100, 25.0), 8, [0, 12, 25, 37, 50, 62, 75, 87]),
        (SamplingRule("qwen2", None, 4, 768), (5, 25.0), 5, [0, 1, 2, 3, 4]),
        (SamplingRule("qwen2", 2.0, 4, 768, num_frames=6), (60, 30.0), 6, [0, 10, 20]),
        (SamplingRule("qwen3", 2.0, 4, 768), (100, 25.0), 8, [0, 14, 28, 42, 57, 71, 85, 99]),
        (SamplingRule("qwen3", 2.0, 4, 768), (3, 1.0), 3, [0, 1, 2]),
    ],
)
def test_frames(rule: SamplingRule, clip: Any, count: int, begins: list[int]) -> None:
    indices = frame_indices(rule, *clip)
    assert len(indices) == count
    assert indices[: len(begins)] == begins
    assert all(0 <= index < clip[0] for index in indices)


@pytest.mark.parametrize("sample", ["leading", "middle", "rand"])
@pytest.mark.parametrize("clip", [(1, 30.0), (3, 0.5), (47, 12.5), (1000, 23.976)])
def test_ernie_frames_are_ascending_and_the_same_each_time(sample: str, clip: Any) -> None:
    rule = replace(ERNIE_RULE, frames_sample=sample)
    indices = frame_indices(rule, *clip)
    assert indices == frame_indices(rule, *clip)
    assert indices == sorted(indices)
    assert all(0 <= index < clip[0] for index in indices)


def test_frames_that_are_not_there() -> None:
    with pytest.raises(MediaError, match="no frames"):
        frame_indices(ERNIE_RULE, 0, 25.0)
    with pytest.raises(MediaError, match="8 of its 5 frames"):
        frame_indices(SamplingRule("qwen2", 2.0, 4, 768, num_frames=8), 5, 25.0)
    with pytest.raises(MediaError, match="2147483648 frames are asked for"):
        frame_indices(SamplingRule("qwen3", 2.0, 4, 768, num_frames=1 << 31), 5, 25.0)


def test_normalisation() -> None:
    # What torch makes of transformers' fused formula.
    clip = np.frombuffer(Settings(14, 2, 2).table(), np.float32).reshape(3, 256)
    assert [str(v) for v in clip[0, [0, 1, 127, 128, 255]]] == [
        str(np.float32(v)) for v in (-1.7922626, -1.7776642, 0.061737582, 0.07633601, 1.9303362)
    ]
    half = np.frombuffer(Settings(16, 2, 2, mean=HALVES, std=HALVES).table(), np.float32)
    assert [str(v) for v in half[[0, 1, 127, 128, 255]]] == [
        str(np.float32(v)) for v in (-1, -0.99215686, -0.003921569, 0.003921569, 1)
    ]
    plain = np.frombuffer(Settings(14, 2, 2, do_normalize=False).table(), np.float32)
    assert plain[255] == 1
    raw = Settings(14, 2, 2, do_normalize=False, do_rescale=False).table()
    assert np.frombuffer(raw, np.float32)[77] == 77


# A prompt of 2 texts, START, the item, END, 2 texts.
@pytest.mark.parametrize(
    ("family", "modality", "grid", "interval", "t", "end", "first"),
    [
        ("qwen2_vl", "image", (1, 8, 12), 0, [3], 6 + 3, 9 + 3),
        ("qwen2_5_vl", "video", (3, 8, 8), 1.5, [3, 6, 9], 10, 13),
        ("qwen2_5_vl", "video", (3, 8, 8), 0.75, [3, 4, 6], 7, 10),
        ("qwen2_vl", "video", (5, 4, 4), 1.5, [3, 4, 5, 6, 7], 8, 11),
        ("ernie4_5_vl", "video", (10, 4, 4), 0, [3, 4, 5, 6, 7], 8, 11),
    ],
)
def test_what_follows_an_item_is_above_all_of_it(
    family: str, modality: str, grid: Any, interval: float, t: list[int], end: int, first: int
) -> None:
    model = model_settings(family)
    item = rows_of(modality, Grid(*grid), model, interval)
    (rows,) = item_pieces(item, model)
    assert isinstance(rows, Rows)
    found = rope_positions([3, rows, 3])
    area = item.llm_grid.h * item.llm_grid.w
    assert list(found.t[3:-3:area]) == t
    assert sorted(set(found.h[3:-3])) == list(range(3, 3 + item.llm_grid.h))
    assert sorted(set(found.w[3:-3])) == list(range(3, 3 + item.llm_grid.w))
    assert found.t[-3] == found.h[-3] == found.w[-3] == end
    assert found.next == first
    assert found.delta == first - len(found.t)


def test_text_alone_has_one_axis() -> None:
    found = rope_positions([7])
    assert list(found.t) == list(found.h) == list(found.w) == list(range(7))
    assert (found.next, found.delta) == (7, 0)


def test_positions_have_an_end() -> None:
    model = model_settings("qwen2_5_vl")
    item = rows_of("video", Grid(3, 2, 2), model, 1e12)
    with pytest.raises(MediaError, match="too long"):
        time_steps(item, model)


def test_lay_out() -> None:
    model = model_settings("qwen3_vl")
    image = rows_of("image", Grid(1, 4, 4), model, 0)
    clip = replace(rows_of("video", Grid(2, 4, 4), model, 0), timestamps=(0.3, 1.55))
    text = "a<|image_pad|>b<|vision_start|><|video_pad|><|vision_end|>c"
    pieces = lay_out(text, [image], [clip], model)
    shown = "".join(p if isinstance(p, str) else f"[{p.first}+{p.count}]" for p in pieces)
    assert shown == (
        "a[0+4]b<0.3 seconds><|vision_start|>[0+4]<|vision_end|>"
        "<1.6 seconds><|vision_start|>[4+4]<|vision_end|>c"
    )
    for images, clips in (([], [clip]), ([image, image], [clip]), ([image], [])):
        with pytest.raises(MediaError, match="there must be one"):
            lay_out(text, images, clips, model)


def test_ernie_clips_use_the_images_token() -> None:
    model = model_settings("ernie4_5_vl")
    clip = rows_of("video", Grid(4, 4, 4), model, 0)
    (opening, rows, closing) = lay_out("x<|video@placeholder|>y", [], [clip], model)
    assert (opening, closing) == ("x", "y")
    assert isinstance(rows, Rows)
    assert (rows.pad, rows.count) == ("<|IMAGE_PLACEHOLDER|>", 8)


def test_smolvlm_clips_tell_of_their_time() -> None:
    model = model_settings("smolvlm")
    clip = rows_of("video", Grid(2, 4, 4), model, 0, rate=61.0)
    clip = replace(clip, llm_grid=Grid(2, 1, 4), duration=3723.9)
    texts = [piece for piece in item_pieces(clip, model) if isinstance(piece, str)]
    assert texts[0] == (
        "You are provided the following series of two frames from a 1:02:03 [H:MM:SS] video.\n"
    )
    assert texts[1] == "\nFrame from 00:00:<fake_token_around_image><global-img>"
    assert texts[3] == "\nFrame from 01:01:<fake_token_around_image><global-img>"
    assert texts[-1] == "\n\n"


def test_words_and_clocks() -> None:
    numbers = {0: "zero", 10: "ten", 13: "thirteen", 20: "twenty", 64: "sixty-four"}
    numbers |= {
        100: "one hundred",
        105: "one hundred and five",
        999: "nine hundred and ninety-nine",
    }
    assert {n: number_in_words(n) for n in numbers} == numbers
    with pytest.raises(MediaError):
        number_in_words(1000)
    assert clock(0) == "00:00:00.00"
    assert clock(3725.128) == "01:02:05.13"
    assert clock(59.996) == "00:00:60.00"


def test_options() -> None:
    model = model_settings("ernie4_5_vl")
    options = {"image_max_pixels": 6272, "video_fps": 1, "video_frames_sample": "middle"}
    image = with_options(model.image, "image", options)
    video = with_options(model.video, "video", options)
    assert image.max_pixels == 6272
    assert video.max_pixels == model.video.max_pixels
    assert video.sampling is not None
    assert (video.sampling.fps, video.sampling.frames_sample) == (1.0, "middle")
    target = with_options(model.video, "video", {"fps": -1, "target_frames": 30})
    assert target.sampling is not None
    assert target.sampling.num_frames == 30
    again = with_options(target, "video", {"fps": 3})
    assert again.sampling is not None
    assert (again.sampling.num_frames, again.sampling.fps) == (None, 3.0)
    size = {"size": {"shortest_edge": 3136, "longest_edge": 9408}}
    assert with_options(model.image, "image", size).max_pixels == 9408
    assert with_options(model.image, "image", {"spatial_conv_size": 2}) == model.image


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"image_max_pixels": "6272"}, TypeError, "image_max_pixels must be an int"),
        ({"image_max_pixels": True}, TypeError, "must be an int"),
        ({"image_max_pixels": 6272.0}, TypeError, "must be an int"),
        ({"image_max_pixels": 0}, ValueError, "must lie in"),
        ({"image_max_pixels": 100}, ValueError, "min_pixels <= max_pixels"),
        ({"video_fps": "2"}, TypeError, "must be a number"),
        ({"video_fps": float("nan")}, ValueError, "finite"),
        ({"video_fps": 10**400}, ValueError, "an int of"),
        ({"video_fps": 0}, ValueError, "above 0"),
        ({"video_fps": 1, "video_target_frames": 8}, ValueError, "exclude each other"),
        ({"video_frames_sample": "last"}, ValueError, "must be one of"),
        ({"video_frames_sample": 1}, TypeError, "must be a str"),
        ({"video_min_frames": 200}, ValueError, "above max_frames"),
        ({"spatial_conv_size": 3}, ValueError, "weights fix it"),
        ({"temporal_conv_size": 4}, ValueError, "weights fix it"),
        ({"draw_on_frames": 1}, TypeError, "must be a bool"),
        ({"fps": 2, "video_fps": 3}, ValueError, "contradicts"),
        ({"image_max_pixel": 6272}, ValueError, "has no 'image_max_pixel'"),
        ({"size": 5}, TypeError, "shortest_edge"),
        ({"do_image_splitting": True}, ValueError, "not tiled"),
        ({"cap_pixels_per_frame": True}, ValueError, "no such cap"),
        ([], TypeError, "must be a dict"),
    ],
)
def test_wrong_options(options: Any, error: type[Exception], words: str) -> None:
    model = model_settings("ernie4_5_vl")
    found = []
    for modality, base in (("image", model.image), ("video", model.video)):
        try:
            with_options(base, modality, options)
        except (TypeError, ValueError) as problem:
            found.append(problem)
    assert found
    assert all(type(problem) is error for problem in found), found
    assert words in str(found[0])


def test_caps_of_clips() -> None:
    qwen2 = replace(model_settings("qwen2_vl").video, cap_pixels=True)
    assert qwen2.clip_bounds(4).max_pixels == 602112
    assert qwen2.clip_bounds(768).max_pixels == int(128000 * 784 * 0.9) * 2 // 768
    qwen3 = replace(model_settings("qwen3_vl").video, cap_pixels=True)
    assert qwen3.clip_bounds(4).max_pixels == 4 * 768 * 1024
    assert qwen3.clip_bounds(100).max_pixels == 100 * (25165824 // 100)

"""What the families of models with pictures have in common, as one table of what differs.

Published values where they are known; a model's own files come before them (model_settings.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.errors import UnsupportedError
from headrace.media.sampling import SamplingRule
from headrace.media.settings import HALVES, Settings
from headrace.quoting import quoted


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of prompt and of preprocessing.

    image_mark, video_mark: what the model's chat template writes for an item.
    image_pad, video_pad: the token that stands for one row of the item.
    image_shown, video_shown: what is written for an item where a template takes texts alone; {n}
        counts the items of its kind.
    splits_tokens: whether text and images go to experts of their own, by the ids of tokens.
    takes_clips: else `video` and what is written for clips count for nothing.
    video_time: what a clip's rows are given of its time: "index" (positions count grids),
        "seconds" (positions grow with time), "text" (each grid follows its time, as text).
    """

    name: str
    model_types: tuple[str, ...]
    image: Settings
    video: Settings
    image_mark: str
    video_mark: str
    image_pad: str
    video_pad: str
    image_shown: str
    video_shown: str
    video_time: str = "index"
    splits_tokens: bool = False
    takes_clips: bool = True

    @property
    def marks(self) -> tuple[str, ...]:
        """All that templates write for items."""
        return (self.image_mark, self.video_mark) if self.takes_clips else (self.image_mark,)


_QWEN_IMAGE = Settings(14, 2, 2, min_pixels=3136, max_pixels=12845056)
_QWEN_VIDEO = Settings(
    14,
    2,
    2,
    min_pixels=100352,
    max_pixels=602112,
    sampling=SamplingRule("qwen2", fps=2.0, min_frames=4, max_frames=768),
    cap_tokens=128_000,
)
_QWEN_TEXTS: dict[str, Any] = {
    "image_mark": "<|image_pad|>",
    "video_mark": "<|video_pad|>",
    "image_pad": "<|image_pad|>",
    "video_pad": "<|video_pad|>",
    "image_shown": "<|vision_start|><|image_pad|><|vision_end|>",
    "video_shown": "<|vision_start|><|video_pad|><|vision_end|>",
}

_GEMMA_IMAGE = Settings(14, 4, 1, mean=HALVES, std=HALVES, resample=2, square=896)

FAMILIES = (
    Family("qwen2_vl", ("qwen2_vl",), _QWEN_IMAGE, _QWEN_VIDEO, **_QWEN_TEXTS),
    Family(
        "qwen2_5_vl",
        ("qwen2_5_vl",),
        _QWEN_IMAGE,
        _QWEN_VIDEO,
        **_QWEN_TEXTS,
        video_time="seconds",
    ),
    Family(
        "qwen3_vl",
        ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"),
        Settings(16, 2, 2, min_pixels=65536, max_pixels=16777216, mean=HALVES, std=HALVES),
        Settings(
            16,
            2,
            2,
            min_pixels=4096,
            max_pixels=25165824,
            mean=HALVES,
            std=HALVES,
            sampling=SamplingRule("qwen3", fps=2.0, min_frames=4, max_frames=768),
            bounds_whole_clip=True,
            cap_tokens=768,
        ),
        image_mark="<|image_pad|>",
        video_mark="<|vision_start|><|video_pad|><|vision_end|>",
        image_pad="<|image_pad|>",
        video_pad="<|video_pad|>",
        image_shown=_QWEN_TEXTS["image_shown"],
        video_shown=_QWEN_TEXTS["video_shown"],
        video_time="text",
    ),
    Family(
        "ernie4_5_vl",
        ("ernie4_5_moe_vl", "ernie4_5_vl_moe"),
        Settings(14, 2, 1, min_pixels=3136, max_pixels=4842768),
        Settings(
            14,
            2,
            1,
            min_pixels=234416,
            max_pixels=937664,
            temporal_merge_size=2,
            sampling=SamplingRule("ernie", fps=2.0, min_frames=16, max_frames=180),
            draw_on_frames=True,
        ),
        image_mark="<|image@placeholder|>",
        video_mark="<|video@placeholder|>",
        image_pad="<|IMAGE_PLACEHOLDER|>",
        video_pad="<|IMAGE_PLACEHOLDER|>",
        image_shown="Picture {n}:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>",
        video_shown="Video {n}:<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>",
        splits_tokens=True,
    ),
    Family(
        "smolvlm",
        ("smolvlm", "idefics3"),
        Settings(
            16,
            1,
            1,
            mean=HALVES,
            std=HALVES,
            resample=1,
            tile=512,
            longest_edge=2048,
            do_split=True,
            tile_merge=4,
        ),
        Settings(
            16,
            1,
            1,
            mean=HALVES,
            std=HALVES,
            resample=1,
            tile=512,
            longest_edge=512,
            tile_merge=4,
            sampling=SamplingRule("smolvlm", fps=1.0, min_frames=1, max_frames=64),
        ),
        image_mark="<image>",
        video_mark="<video>",
        image_pad="<image>",
        video_pad="<image>",
        image_shown="<image>",
        video_shown="<video>",
        video_time="text",
    ),
    Family(
        "gemma3",
        ("gemma3",),
        _GEMMA_IMAGE,
        _GEMMA_IMAGE,
        image_mark="<start_of_image>",
        video_mark="",
        image_pad="<image_soft_token>",
        video_pad="",
        image_shown="<start_of_image>",
        video_shown="",
        takes_clips=False,
    ),
)


def family_of(model_type: str) -> Family:
    """The family of a config.json's `model_type`. Raises UnsupportedError for any other."""
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise UnsupportedError(
        f"model_type {quoted(model_type)} takes no images here: these do: {known}"
    )

"""Writes media.json beside this file, with what transformers makes of pictures and clips.

    python tests/golden/media/make_media_golden.py

Needs torch, transformers 5.23.0, numpy, and Pillow from 11.3 to 12.3: Pillow 13 resizes in another
order. torchvision is not needed: the image processors are those that use Pillow.

Pixels are kept as sha256 of bytes: of the patches before normalisation, which are recovered from
the processor's floats; a few floats stand beside them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import PIL
import torch
import transformers
from media_pictures import KINDS, MODES, SIZES, frames, picture
from PIL import Image
from transformers.image_transforms import convert_to_rgb
from transformers.models.ernie4_5_vl_moe import modeling_ernie4_5_vl_moe as ernie
from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe import (
    Ernie4_5_VLMoeImageProcessorPil,
)
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen2_5
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string
from transformers.video_utils import VideoMetadata

# The video processors' modules import torchvision, which what is used of them doesn't need.
for module in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
    sys.modules[module] = MagicMock()
sys.modules["torchvision.transforms.v2.functional"] = MagicMock()

from transformers.models.qwen2_vl.video_processing_qwen2_vl import (  # noqa: E402
    Qwen2VLVideoProcessor,
)
from transformers.models.qwen3_vl.video_processing_qwen3_vl import (  # noqa: E402
    Qwen3VLVideoProcessor,
)
from transformers.models.qwen3_vl.video_processing_qwen3_vl import (  # noqa: E402
    smart_resize as clip_resize,
)
from transformers.models.smolvlm.video_processing_smolvlm import (  # noqa: E402
    SmolVLMVideoProcessor,
)

CLIPS = ((10, 5.0), (100, 25.0), (125, 25.0), (300, 29.97), (7, 30.0), (4, 1.0), (5000, 24.0))
CLIP_SIZES = ((4, 480, 640), (5, 20, 30), (40, 720, 1280), (300, 360, 640), (2, 33, 1000))
# Kinds of token: 0 text, 1 image, 2 video. Grids are in patches.
PROMPTS: dict[str, list[Any]] = {
    "text": [5],
    "image": [3, ("image", (1, 4, 6)), 3],
    "images": [1, ("image", (1, 8, 4)), 2, ("image", (1, 2, 14)), 4],
    "video": [2, ("video", (2, 8, 8)), 3],
    "mixed": [4, ("image", (1, 6, 6)), 2, ("video", (4, 10, 12)), 1, ("image", (1, 4, 4)), 6],
}


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def recovered(values: np.ndarray, mean: Any, std: Any, channel_axis: int) -> np.ndarray:
    """The bytes that a processor normalised."""
    shape = [1] * values.ndim
    shape[channel_axis] = 3
    pixels = (values * np.reshape(std, shape) + np.reshape(mean, shape)) * 255
    assert np.abs(pixels - pixels.round()).max() < 1e-3
    return pixels.round().astype(np.uint8)


def processors() -> dict[str, Any]:
    half = [0.5, 0.5, 0.5]
    return {
        "qwen2_vl": Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=12845056),
        "qwen2_vl small": Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=6272),
        "qwen3_vl": Qwen2VLImageProcessorPil(
            size={"shortest_edge": 65536, "longest_edge": 16777216},
            patch_size=16,
            image_mean=half,
            image_std=half,
        ),
        "ernie4_5_vl": Ernie4_5_VLMoeImageProcessorPil(),
    }


def image_cases() -> list[dict[str, Any]]:
    cases = []
    for name, processor in processors().items():
        for kind in KINDS:
            for height, width in SIZES:
                image = Image.fromarray(picture(kind, height, width))
                made = processor([image], return_tensors="np")
                rows = np.asarray(made["pixel_values"], dtype=np.float32)
                by_channel = rows.reshape(rows.shape[0], 3, -1)
                pixels = recovered(by_channel, processor.image_mean, processor.image_std, 1)
                cases.append(
                    {
                        "processor": name,
                        "picture": [kind, height, width],
                        "grid": np.asarray(made["image_grid_thw"])[0].tolist(),
                        "patches": digest(pixels),
                        "floats": [float(value) for value in rows[-1, ::97]],
                    }
                )
    return cases


def tiled_cases() -> list[dict[str, Any]]:
    cases = []
    for longest, tile, split in ((128, 32, True), (96, 32, True), (64, 64, True), (96, 48, False)):
        processor = SmolVLMImageProcessorPil(
            size={"longest_edge": longest},
            max_image_size={"longest_edge": tile},
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
            do_image_splitting=split,
        )
        for kind in KINDS:
            for height, width in ((40, 50), (77, 131), (150, 90), (9, 200), (64, 64)):
                image = Image.fromarray(picture(kind, height, width))
                made = processor([[image]], return_row_col_info=True, return_tensors="np")
                values = np.asarray(made["pixel_values"])[0]
                cases.append(
                    {
                        "sides": [longest, tile, split],
                        "picture": [kind, height, width],
                        "tiles": [int(made["rows"][0][0]), int(made["cols"][0][0])],
                        "count": len(values),
                        # [tiles, channels, height, width] -> channels last
                        "pixels": digest(
                            recovered(values, [0.5] * 3, [0.5] * 3, 1).transpose(0, 2, 3, 1)
                        ),
                    }
                )
    return cases


def mode_images() -> dict[str, Image.Image]:
    made = {}
    for mode in MODES:
        channels = {"RGBA": 4, "CMYK": 4, "LA": 2}.get(mode, 1)
        pixels = picture("noise", 9, 11, channels)
        if mode in ("RGBA", "LA", "CMYK"):
            made[mode] = Image.fromarray(pixels, mode)
        elif mode == "I;16":
            made[mode] = Image.fromarray(pixels[..., 0].astype(np.uint16) * 3)
        else:
            made[mode] = Image.fromarray(pixels[..., 0]).convert(mode)
    made["P"].info["transparency"] = 3
    return made


def mode_cases() -> dict[str, str]:
    return {
        mode: digest(np.asarray(convert_to_rgb(image, return_numpy=True)))
        for mode, image in mode_images().items()
    }


def sampling_cases() -> list[dict[str, Any]]:
    cases = []
    for total, fps in CLIPS:
        metadata = VideoMetadata(total_num_frames=total, fps=fps, duration=total / fps)
        two = SimpleNamespace(
            num_frames=None, fps=2, temporal_patch_size=2, min_frames=4, max_frames=768
        )
        one = SimpleNamespace(num_frames=64, fps=1)
        for name, kind, own in (
            ("qwen2", Qwen2VLVideoProcessor, two),
            ("qwen3", Qwen3VLVideoProcessor, two),
            ("smolvlm", SmolVLMVideoProcessor, one),
        ):
            if name == "qwen2" and total == 7:
                continue  # its four frames of seven have steps that only differ in rounding
            indices = kind.sample_frames(own, metadata)
            cases.append(
                {"rule": name, "clip": [total, fps], "indices": np.asarray(indices).tolist()}
            )
    return cases


def clip_patches() -> list[dict[str, Any]]:
    cases = []
    for name, kind, patch in (
        ("qwen2_vl", Qwen2VLVideoProcessor, 14),
        ("qwen3_vl", Qwen3VLVideoProcessor, 16),
    ):
        for count in (2, 3, 6):
            pixels = frames(count, 2 * patch, 4 * patch)
            tensor = torch.tensor(pixels).permute(0, 3, 1, 2)[None]
            rows, *grid = kind.patchify(SimpleNamespace(), tensor, patch, 2, 2)
            cases.append(
                {
                    "family": name,
                    "frames": [count, 2 * patch, 4 * patch],
                    "grid": [int(side) for side in grid],
                    "patches": digest(rows[0].numpy()),
                }
            )
    return cases


def clip_sizes() -> list[dict[str, Any]]:
    return [
        {
            "clip": list(clip),
            "bounds": [32, low, high],
            "size": list(clip_resize(*clip, factor=32, min_pixels=low, max_pixels=high)),
        }
        for clip in CLIP_SIZES
        for low, high in ((4096, 25165824), (131072, 786432))
    ]


def position_cases() -> list[dict[str, Any]]:
    vision = SimpleNamespace(spatial_merge_size=2, temporal_merge_size=2, tokens_per_second=2)
    config = SimpleNamespace(vision_config=vision)
    kinds = {
        "qwen2_vl": (qwen2.Qwen2VLModel, 1, {}),
        "qwen2_5_vl": (qwen2_5.Qwen2_5_VLModel, 1, {"second_per_grid_ts": torch.tensor([0.75])}),
        "qwen3_vl": (qwen3.Qwen3VLModel, 1, {}),
        "ernie4_5_vl": (ernie.Ernie4_5_VLMoeModel, 2, {}),
    }
    cases = []
    for family, (model, pair, extra) in kinds.items():
        own = SimpleNamespace(config=config)
        own.get_vision_position_ids = lambda *a, _m=model, _o=own, **k: _m.get_vision_position_ids(
            _o, *a, **k
        )
        for name, prompt in PROMPTS.items():
            types, images, videos = token_types(family, prompt, pair)
            given = dict(extra) if "video" in name or name == "mixed" else {}
            ids, delta = model.get_rope_index(
                own,
                torch.zeros(1, len(types), dtype=torch.long),
                torch.tensor([types]),
                image_grid_thw=torch.tensor(images) if images else None,
                video_grid_thw=torch.tensor(videos) if videos else None,
                **given,
            )
            cases.append(
                {
                    "family": family,
                    "prompt": name,
                    "pieces": prompt,
                    "positions": ids[:, 0].tolist(),
                    "delta": int(delta.item()),
                }
            )
    return cases


def token_types(family: str, prompt: list[Any], pair: int) -> tuple[list[int], Any, Any]:
    types: list[int] = []
    images, videos = [], []
    for piece in prompt:
        if isinstance(piece, int):
            types += [0] * piece
            continue
        modality, (t, h, w) = piece
        if modality == "image":
            images.append([t, h, w])
            types += [1] * (t * h * w // 4)
        elif family == "qwen3_vl":
            videos.append([t, h, w])
            for _ in range(t):  # one token of text between, for its time
                types += [0] + [2] * (h * w // 4)
        else:
            videos.append([t, h, w])
            types += [2] * (t * h * w // 4 // pair)
    return types, images, videos


def prompt_cases() -> list[dict[str, Any]]:
    return [
        {
            "tiles": [rows, columns],
            "text": get_image_prompt_string(
                rows, columns, 4, "<fake_token_around_image>", "<image>", "<global-img>"
            ),
        }
        for rows, columns in ((0, 0), (1, 2), (3, 2))
    ]


def main() -> None:
    assert transformers.__version__ == "5.23.0", transformers.__version__
    assert (11, 3) <= tuple(map(int, PIL.__version__.split(".")[:2])) < (13, 0), PIL.__version__
    golden = {
        "made_with": {"transformers": transformers.__version__, "pillow": PIL.__version__},
        "images": image_cases(),
        "tiled": tiled_cases(),
        "modes": mode_cases(),
        "sampling": sampling_cases(),
        "clip_patches": clip_patches(),
        "clip_sizes": clip_sizes(),
        "positions": position_cases(),
        "prompts": prompt_cases(),
    }
    path = Path(__file__).parent / "media.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Writes the tiny vision model as published folders have it (the layout of -PT)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

import beside  # noqa: F401 (finds the tiny model's modules)
from pictures import FACTOR, MEAN, PATCH, STD
from tokens import BOS_ID, EOS_ID, UNK_ID
from vision_model import VisionModel, VisionShape
from vision_tokens import IMAGE_END, IMAGE_START, VIDEO_END, VIDEO_START, write_tokenizer

LEAST_PIXELS = 2 * 2 * FACTOR * FACTOR
MOST_PIXELS = 4 * 4 * FACTOR * FACTOR  # 64 x 64, or as much in another shape
_SPECIAL = {"pad_token_id": UNK_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
_FLOAT32 = ("mlp.gate.weight", "e_score_correction_bias")


def config_of(shape: VisionShape, patch_id: int, ids: dict[str, int]) -> dict[str, Any]:
    """config.json in the spelling of the published files. ids: of the tokens around items."""
    text = shape.text
    last = text.num_hidden_layers - 1
    return {
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
        "model_type": "ernie4_5_moe_vl",
        "vocab_size": text.vocab_size,
        "hidden_size": text.hidden_size,
        "intermediate_size": text.intermediate_size,
        "num_hidden_layers": text.num_hidden_layers,
        "num_attention_heads": text.num_attention_heads,
        "num_key_value_heads": text.num_key_value_heads,
        "head_dim": text.head_dim,
        "rope_theta": text.rope_theta,
        "rope_3d": True,
        "freq_allocation": shape.time_pairs,
        "rms_norm_eps": text.rms_norm_eps,
        "max_position_embeddings": text.max_position_embeddings,
        **_SPECIAL,
        "im_patch_id": patch_id,
        "image_start_token_id": ids[IMAGE_START],
        "image_end_token_id": ids[IMAGE_END],
        "video_start_token_id": ids[VIDEO_START],
        "video_end_token_id": ids[VIDEO_END],
        "moe_num_experts": [shape.experts, shape.experts],
        "moe_intermediate_size": list(shape.widths),
        "moe_k": shape.chosen,
        "moe_num_shared_experts": shape.shared,
        "moe_layer_start_index": [shape.first_sparse, shape.first_sparse],
        "moe_layer_end_index": [last, last],
        "moe_layer_interval": 1,
        "moe_use_aux_free": True,
        "moe_norm_min": 1e-12,
        "moe_gate_act": "softmax",
        "spatial_conv_size": 2,
        "temporal_conv_size": 2,
        "pixel_hidden_size": shape.tower_hidden,
        "vision_config": {
            "depth": shape.tower_depth,
            "embed_dim": shape.tower_hidden,
            "hidden_size": shape.tower_hidden,
            "hidden_act": "quick_gelu",
            "mlp_ratio": shape.tower_ratio,
            "num_heads": shape.tower_heads,
            "in_channels": 3,
            "patch_size": PATCH,
            "spatial_merge_size": 2,
        },
        "hidden_act": "silu",
        "use_bias": False,
        "use_cache": True,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }


def _processors() -> dict[str, dict[str, Any]]:
    """How pictures and clips are prepared, by file."""
    common = {
        "do_convert_rgb": True,
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "resample": 3,
        "patch_size": PATCH,
        "merge_size": 2,
        "temporal_conv_size": 2,
        "min_pixels": LEAST_PIXELS,
        "max_pixels": MOST_PIXELS,
    }
    clips = {"fps": 2, "min_frames": 4, "max_frames": 4, "draw_on_frames": False}
    return {
        "preprocessor_config.json": common,
        "video_preprocessor_config.json": {**common, **clips},
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def export(model: VisionModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the folder: weights in bfloat16, but for the routers."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(
        folder / "config.json", config_of(model.shape, model.patch_id, tokenizer.get_vocab())
    )
    _write_json(folder / "generation_config.json", {**_SPECIAL, "do_sample": False})
    for name, value in _processors().items():
        _write_json(folder / name, value)
    weights = {
        name: value.to(torch.float32 if _keeps_float32(name) else torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(tokenizer, folder, model.shape.text.max_position_embeddings)


def _keeps_float32(name: str) -> bool:
    return any(part in name for part in _FLOAT32)

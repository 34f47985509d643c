"""The tiny models with vision towers that make_vision.py writes goldens of."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import state_configs
from case_types import Experts
from layer_configs import without
from state_configs import FULL, LINEAR, delta_heads

IMAGE_PAD, VIDEO_PAD, START, END = 250, 251, 252, 253  # behind all ids that prompts draw
FIRST_TEXT, TEXT_END = 5, 250


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """Patches over time (or tiles), height and width, drawn at random."""

    grid: tuple[int, int, int]
    video: bool = False
    step: float = 1.0  # positions over time between two grids of a clip


@dataclasses.dataclass(frozen=True, slots=True)
class VisionTwin:
    """A second folder with the same weights and answers, by the makers' names and config."""

    name: str
    layout: Literal["torch", "paddle"]
    config: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class VisionCase:
    """One folder. A prompt is a list of lengths of text and of items ("0": item 0)."""

    name: str
    about: str
    config: dict[str, Any]
    items: tuple[Item, ...]
    prompts: tuple[tuple[int | str, ...], ...]
    seed: int = 0  # the first to try
    apart: bool = False  # each grid of a clip is a run of its own, behind text of its own
    axes: int = 3  # 1: an item's rows have positions like text
    pairs: bool = False  # two grids of a clip become one
    experts: Experts | None = None
    twins: tuple[VisionTwin, ...] = ()
    mtp: bool = False  # the file has the tensors of a block that guesses tokens


TEXT = {
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "use_cache": True,
    "vocab_size": 256,
}
TOKENS = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "image_token_id": IMAGE_PAD,
    "video_token_id": VIDEO_PAD,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}

# Published files are flat.
QWEN2_5_VL = VisionCase(
    name="qwen2_5_vl",
    about="windows of 4 x 4 squares that divide a grid and don't, a gated MLP, a flat config",
    config={
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        **TEXT,
        **TOKENS,
        "max_window_layers": 2,
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vision_config": {
            "depth": 3,
            "fullatt_block_indexes": [1],
            "hidden_act": "silu",
            "hidden_size": 48,
            "in_chans": 3,
            "intermediate_size": 68,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "spatial_patch_size": 4,
            "temporal_patch_size": 2,
            "tokens_per_second": 2,
            "window_size": 32,
        },
    },
    items=(
        Item((1, 10, 22)),
        Item((1, 8, 16)),
        Item((1, 4, 4)),
        Item((1, 2, 6)),
        Item((3, 6, 10), video=True, step=1.5),
    ),
    prompts=((7,), (3, "0", 4), ("1", 2, "2", 1, "3", 3), (2, "4", 5), (1, "2", 1, "4", "3")),
)

# transformers 5 nests.
QWEN2_VL = VisionCase(
    name="qwen2_vl",
    about="layer norms, quick GELU, text_config, tie_word_embeddings within it",
    config={
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "dtype": "bfloat16",
        "model_type": "qwen2_vl",
        **TOKENS,
        "text_config": {
            **TEXT,
            "model_type": "qwen2_vl_text",
            "layer_types": ["full_attention", "full_attention"],
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "default",
                "mrope_section": [2, 3, 3],
            },
            "use_sliding_window": False,
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "depth": 2,
            "embed_dim": 40,
            "hidden_act": "quick_gelu",
            "hidden_size": 64,
            "in_channels": 3,
            "mlp_ratio": 2,
            "model_type": "qwen2_vl_vision",
            "num_heads": 1,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    },
    items=(Item((1, 6, 10)), Item((1, 4, 2)), Item((3, 6, 4), video=True)),
    prompts=((3, "0", 4), ("1", 2, "0", 3), (2, "2", 5)),
)

SMOLVLM = VisionCase(
    name="smolvlm",
    about="square tiles, pixel shuffle of 4 x 4, positions of text, a tower by SigLIP's names",
    config={
        "architectures": ["SmolVLMForConditionalGeneration"],
        "image_token_id": IMAGE_PAD,
        "model_type": "smolvlm",
        "pad_token_id": 2,
        "scale_factor": 4,
        "text_config": {
            **{key: value for key, value in TEXT.items() if key != "rms_norm_eps"},
            "architectures": ["VLlama3ForCausalLM"],
            "bos_token_id": 1,
            "eos_token_id": 2,
            "head_dim": 16,
            "is_llama_config": True,
            "model_type": "llama",
            "pixel_shuffle_factor": 4,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "torch_dtype": "bfloat16",
        },
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vision_config": {
            "hidden_size": 32,
            "image_size": 32,
            "intermediate_size": 60,
            "max_image_size": {"longest_edge": 32},
            "model_type": "smolvlm_vision",
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "patch_size": 4,
            "size": {"longest_edge": 128},
        },
        "vocab_size": 256,
    },
    items=(Item((1, 8, 8)), Item((3, 8, 8))),
    prompts=((3, "0", 4), ("1", 2, "0", 3)),
    axes=1,
)


def qwen3_vl(name: str, model_type: str, architecture: str, about: str, **text: Any) -> VisionCase:
    """Positions from a table of 4 x 4 for smaller and larger grids, deepstack not in order."""
    return VisionCase(
        name=name,
        about=about,
        config={
            "architectures": [architecture],
            "model_type": model_type,
            **{key: value for key, value in TOKENS.items() if not key.startswith(("bos", "eos"))},
            "text_config": {
                **TEXT,
                "attention_bias": False,
                "bos_token_id": 1,
                "dtype": "bfloat16",
                "eos_token_id": 2,
                "head_dim": 16,
                "model_type": f"{model_type}_text",
                "num_hidden_layers": 3,
                "rope_scaling": {
                    "mrope_interleaved": True,
                    "mrope_section": [4, 2, 2],
                    "rope_type": "default",
                },
                "rope_theta": 10000.0,
                **text,
            },
            "tie_word_embeddings": False,
            "vision_config": {
                "deepstack_visual_indexes": [2, 0],
                "depth": 3,
                "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": 40,
                "in_channels": 3,
                "intermediate_size": 56,
                "model_type": model_type,
                "num_heads": 1,
                "num_position_embeddings": 16,
                "out_hidden_size": 64,
                "patch_size": 4,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
        },
        items=(Item((1, 6, 10)), Item((1, 2, 2)), Item((1, 4, 4)), Item((3, 4, 6), video=True)),
        prompts=((3, "0", 4), ("1", 2, "2", 1, "0"), (2, "3", 5), ("3", 1, "1", 4)),
        apart=True,
    )


QWEN3_VL = qwen3_vl(
    "qwen3_vl",
    "qwen3_vl",
    "Qwen3VLForConditionalGeneration",
    "interleaved axes, deepstack [2, 0], a table of 4 x 4 positions for grids of other sizes",
)
# 2 * 24 columns of gate and up are not the hidden size: published files have them last.
QWEN3_VL_MOE = qwen3_vl(
    "qwen3_vl_moe",
    "qwen3_vl_moe",
    "Qwen3VLMoeForConditionalGeneration",
    "all experts in one tensor, [E, H, 2 I] and [E, I, H]",
    decoder_sparse_step=1,
    mlp_only_layers=[1],
    moe_intermediate_size=24,
    norm_topk_prob=True,
    num_experts=6,
    num_experts_per_tok=2,
)


def qwen3_5(name: str, about: str, text: dict[str, Any], **changes: Any) -> VisionCase:
    """A small tower without deepstack: positions of a table of 4 x 4, two heads."""
    kind = text["model_type"].removesuffix("_text")
    return VisionCase(
        name=name,
        about=about,
        config={
            "architectures": [
                text["architectures"][0].replace("CausalLM", "ConditionalGeneration")
            ],
            "model_type": kind,
            **{key: value for key, value in TOKENS.items() if not key.startswith(("bos", "eos"))},
            "text_config": without(text, "architectures"),
            "tie_word_embeddings": text["tie_word_embeddings"],
            "transformers_version": "4.57.0.dev0",
            "vision_config": {
                "deepstack_visual_indexes": [],
                "depth": 2,
                "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": 32,
                "in_channels": 3,
                "intermediate_size": 56,
                "model_type": kind,
                "num_heads": 2,
                "num_position_embeddings": 16,
                "out_hidden_size": 64,
                "patch_size": 4,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
        },
        items=(Item((1, 6, 10)), Item((1, 2, 2)), Item((1, 4, 4)), Item((3, 4, 6), video=True)),
        prompts=((3, "0", 4), ("1", 2, "2", 1, "0"), (2, "3", 5), ("3", 1, "1", 4)),
        apart=True,
        **changes,
    )


QWEN3_5 = qwen3_5(
    "qwen3_5",
    "states beside positions on three axes of a quarter of a head; a block that guesses",
    state_configs.qwen3_5(
        intermediate_size=64,
        layer_types=[LINEAR, FULL, LINEAR],
        num_attention_heads=2,
        num_hidden_layers=3,
        num_key_value_heads=1,
        rope_parameters=state_configs.qwen_rope(mrope_section=[4, 2, 2], partial_rotary_factor=0.5),
        vocab_size=256,
        **delta_heads((2, 8), (4, 8)),
    ),
    mtp=True,
)
QWEN3_5_MOE = qwen3_5(
    "qwen3_5_moe",
    "the same with experts, one tensor of all as [E, 2 I, H] and [E, H, I]; tied head",
    state_configs.qwen3_5_moe(
        full_attention_interval=2,
        head_dim=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        num_key_value_heads=1,
        rope_parameters=state_configs.qwen_rope(partial_rotary_factor=0.5),
        tie_word_embeddings=True,
        vocab_size=256,
        **delta_heads((2, 8), (2, 8)),
    ),
    experts=Experts(),
)

ERNIE_TEXT = {
    **TEXT,
    "moe_k": 2,
    "moe_intermediate_size": [16, 8],
    "moe_num_shared_experts": 2,
    "num_hidden_layers": 3,
    "rms_norm_eps": 1e-5,
}
# The makers' key names; their files are flat.
ERNIE_PUBLISHED = {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "model_type": "ernie4_5_moe_vl",
    **ERNIE_TEXT,
    "compression_ratio": 1.0,
    "freq_allocation": 2,
    "im_patch_id": IMAGE_PAD,
    "max_text_id": IMAGE_PAD,
    "modality_detach": True,
    "moe_capacity": [8, 8, 8],
    "moe_dense_experts_token_type_id": 3,
    "moe_gate": "topk",
    "moe_layer_end_index": [29, 28],
    "moe_layer_interval": 1,
    "moe_layer_start_index": [1, 1],
    "moe_num_experts": [4, 4],
    "moe_use_aux_free": True,
    "moe_use_hard_gate": True,
    "pad_token_id": 0,
    "pixel_hidden_size": 40,
    "rope_3d": True,
    "rope_theta": 10000.0,
    "spatial_conv_size": 2,
    "temporal_conv_size": 2,
    "tie_word_embeddings": False,
    "use_bias": False,
    "use_rmsnorm": True,
    "vision_config": {
        "attn_sep": True,
        "depth": 2,
        "embed_dim": 40,
        "hidden_act": "quick_gelu",
        "hidden_size": 40,
        "in_channels": 3,
        "in_chans": 3,
        "mlp_ratio": 2,
        "model_type": "DFNRope_vision_transformer",
        "num_heads": 1,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "spatial_patch_size": 4,
        "vit_first_fwd_bsz": 128,
    },
}
# As transformers saves it. The last clip has more pairs than its grid has squares on a side: the
# position behind it isn't transformers'.
ERNIE_VL = VisionCase(
    name="ernie4_5_vl_moe",
    about="experts of text and of vision, height and width in turn, pairs of frames, a resampler",
    config={
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
        "dtype": "bfloat16",
        "image_end_token_id": END,
        "image_start_token_id": START,
        "image_token_id": IMAGE_PAD,
        "model_type": "ernie4_5_vl_moe",
        "text_config": {
            **ERNIE_TEXT,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "model_type": "ernie4_5_vl_moe_text",
            "moe_norm_min": 1e-12,
            "moe_num_experts": 4,
            "pad_token_id": None,
            "rope_parameters": {
                "mrope_section": [3, 3, 2],
                "rope_theta": 10000.0,
                "rope_type": "default",
            },
            "tie_word_embeddings": True,
            "use_bias": False,
        },
        "tie_word_embeddings": False,
        "transformers_version": "5.23.0",
        "video_end_token_id": END,
        "video_start_token_id": START,
        "video_token_id": VIDEO_PAD,
        "vision_config": {
            "depth": 2,
            "hidden_act": "quick_gelu",
            "hidden_size": 40,
            "in_channels": 3,
            "intermediate_size": 80,
            "model_type": "ernie4_5_vl_moe_vision",
            "num_heads": 1,
            "patch_size": 4,
            "rms_norm_eps": 1e-6,
            "spatial_merge_size": 2,
            "temporal_merge_size": 2,
        },
    },
    items=(
        Item((1, 6, 10)),
        Item((1, 2, 14)),
        Item((1, 4, 4)),
        Item((4, 6, 4), video=True),
        Item((2, 4, 6), video=True),
        Item((6, 4, 4), video=True),
    ),
    prompts=(
        (9,),
        (3, "0", 4),
        ("1", 2, "2", 1, "0", 3),
        (2, "3", 5),
        ("2", 1, "4", "1", 2, "3"),
        (2, "5", 2),
    ),
    pairs=True,
    experts=Experts(correction=(0.0, 0.05)),
    twins=(
        VisionTwin(
            name="ernie4_5_vl",
            layout="torch",
            config={**ERNIE_PUBLISHED, "torch_dtype": "bfloat16"},
        ),
        VisionTwin(
            name="ernie4_5_vl_paddle",
            layout="paddle",
            config={**ERNIE_PUBLISHED, "dtype": "bfloat16", "fuse_rms_norm": True},
        ),
    ),
)

# As published, with what class defaults leave out.
GEMMA3 = VisionCase(
    name="gemma3",
    about="rows of a picture that see each other, windows shorter than one, means of 2 x 2 patches",
    config={
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": START,
        "eoi_token_index": END,
        "eos_token_id": [2, 106],
        "image_token_index": IMAGE_PAD,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 16,
        "model_type": "gemma3",
        "text_config": {
            "head_dim": 16,
            "hidden_size": 64,
            "intermediate_size": 48,
            "max_position_embeddings": 512,
            "model_type": "gemma3_text",
            "num_attention_heads": 4,
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "query_pre_attn_scalar": 20,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 10,
            "sliding_window_pattern": 3,
            "vocab_size": 256,
        },
        "torch_dtype": "bfloat16",
        "transformers_version": "4.50.0.dev0",
        "vision_config": {
            "hidden_size": 32,
            "image_size": 32,
            "intermediate_size": 64,
            "layer_norm_eps": 1e-5,
            "model_type": "siglip_vision_model",
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "patch_size": 4,
            "vision_use_head": False,
        },
    },
    items=(Item((1, 8, 8)), Item((2, 8, 8))),
    prompts=((3, "0", 4), ("1", 2, "0", 3), (7,)),
    axes=1,
)

CASES = (
    QWEN2_5_VL,
    QWEN2_VL,
    SMOLVLM,
    QWEN3_VL,
    QWEN3_VL_MOE,
    QWEN3_5,
    QWEN3_5_MOE,
    ERNIE_VL,
    GEMMA3,
)

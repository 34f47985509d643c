"""The golden cases of Gemma 4's text models. No size is a published one."""

from __future__ import annotations

from typing import Any

from case_types import Case, Experts, Twin
from layer_configs import gemma, without

SLIDING, FULL = "sliding_attention", "full_attention"


def gemma4(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_k_eq_v": False,
        "dtype": "bfloat16",
        "enable_moe_block": False,
        "final_logit_softcapping": 0.5,
        "hidden_size": 48,
        "hidden_size_per_layer_input": 0,
        "moe_intermediate_size": None,
        "num_experts": None,
        "num_kv_shared_layers": 0,
        "rms_norm_eps": 1e-4,
        "sliding_window": 20,
        "top_k_experts": None,
        "use_bidirectional_attention": None,
        "use_double_wide_mlp": False,
    }
    config = gemma("Gemma4ForCausalLM", "gemma4_text", **published) | changes
    return without(config, "rope_theta", "torch_dtype")


def wrapped(text: dict[str, Any]) -> dict[str, Any]:
    """The same model in one that sees and hears."""
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "audio_config": None,
        "audio_token_id": 91,
        "boa_token_id": 92,
        "boi_token_id": 93,
        "dtype": "bfloat16",
        "eoa_token_index": 94,
        "eoi_token_id": 95,
        "eos_token_id": [2],
        "image_token_id": 96,
        "initializer_range": 0.02,
        "model_type": "gemma4",
        "text_config": without(text, "architectures"),
        "tie_word_embeddings": True,
        "transformers_version": "5.5.0.dev0",
        "video_token_id": 97,
        "vision_config": {
            "head_dim": 16,
            "hidden_size": 32,
            "model_type": "gemma4_vision",
            "num_hidden_layers": 1,
        },
    }


SHARED = gemma4(
    global_head_dim=32,
    hidden_size_per_layer_input=8,
    layer_types=[SLIDING, FULL, SLIDING, FULL, SLIDING, FULL],
    num_global_key_value_heads=None,
    num_hidden_layers=6,
    num_kv_shared_layers=2,
    rope_parameters={
        FULL: {
            "partial_rotary_factor": 0.5,
            "rope_theta": 500000.0,
            "rope_type": "proportional",
        },
        SLIDING: {"rope_theta": 20000.0, "rope_type": "default"},
    },
    use_double_wide_mlp=True,
    vocab_size=157,
    vocab_size_per_layer_input=157,
)

GEMMA4_CASES = (
    Case(
        "gemma4_text",
        "heads of two sizes, layers that read others' keys and values, inputs of each layer",
        "bfloat16",
        SHARED,
        twins=(Twin("gemma4_wrapped", "wrapped", wrapped(SHARED)),),
        seed=16,
    ),
    Case(
        "gemma4_text_v5",
        "transformers 5 keys: a config for each full layer, keys as values, no rope keys; untied",
        "bfloat16",
        gemma4(
            attention_k_eq_v=True,
            final_logit_softcapping=12.0,
            layer_types=[SLIDING, FULL, SLIDING, FULL],
            num_hidden_layers=4,
            per_layer_config={
                "1": {"head_dim": 48, "num_key_value_heads": 1},
                "3": {"head_dim": 48, "num_key_value_heads": 1},
            },
            rms_norm_eps=1e-2,
            tie_word_embeddings=False,
            transformers_version="5.23.0",
            vocab_size=211,
            vocab_size_per_layer_input=262144,
        ),
        seed=1,
    ),
)

GEMMA4_MOE_CASES = (
    Case(
        "gemma4_moe",
        "experts beside an MLP in every layer, each behind norms of its own",
        "bfloat16",
        gemma4(
            attention_k_eq_v=True,
            enable_moe_block=True,
            global_head_dim=32,
            layer_types=[SLIDING, SLIDING, FULL],
            moe_intermediate_size=32,
            num_experts=4,
            num_global_key_value_heads=1,
            num_hidden_layers=3,
            rms_norm_eps=1e-2,
            top_k_experts=2,
            vocab_size=139,
            vocab_size_per_layer_input=262144,
        ),
        experts=Experts(),
    ),
)

"""The golden cases of families whose layers differ from Llama's: norms, ropes, scales, caps, gates.

No size is a published one. Windows are shorter than the prompts, and scales are not 1.
"""

from __future__ import annotations

from typing import Any

from case_types import Case, base, v5_style
from cases_gemma4 import FULL, GEMMA4_CASES, SLIDING
from layer_configs import (
    SMALL,
    cohere2,
    exaone4,
    factors,
    gemma2,
    gemma3,
    glm4,
    olmo,
    phi3,
    phi4_mini,
    smollm3,
    without,
)


def case(name: str, about: str, config: dict[str, Any], **changes: Any) -> Case:
    return Case(name, about, "bfloat16", config, **changes)


GEMMAS = (
    case(
        "gemma2",
        "four norms of 1 + w, caps on scores and logits, tanh GELU, odd layers full",
        gemma2(),
        seed=149,
    ),
    case(
        "gemma3_text",
        "flat keys: a pattern, a rope for windows and a scaled one, norm on q and k",
        gemma3(
            head_dim=48,
            num_attention_heads=2,
            num_hidden_layers=4,
            num_key_value_heads=1,
            query_pre_attn_scalar=20,
            rms_norm_eps=1e-4,
            rope_local_base_freq=10000.0,
            rope_scaling={"factor": 8.0, "rope_type": "linear"},
            rope_theta=1000000.0,
            sliding_window=20,
            sliding_window_pattern=3,
        ),
        seed=23,
    ),
    case(
        "gemma3_text_v5",
        "transformers 5 keys: layer_types and a rope for each kind; a cap on logits",
        without(
            gemma3(
                dtype="bfloat16",
                final_logit_softcapping=0.5,
                layer_types=[SLIDING, FULL, SLIDING],
                num_hidden_layers=3,
                query_pre_attn_scalar=20,
                rope_parameters={
                    FULL: {"factor": 4.0, "rope_theta": 500000.0, "rope_type": "linear"},
                    SLIDING: {"rope_theta": 20000.0, "rope_type": "default"},
                },
                sliding_window=24,
            ),
            "torch_dtype",
            "rope_theta",
        ),
        seed=181,
    ),
)

OLMOS = (
    case(
        "olmo2",
        "norms behind the blocks alone, norm on whole rows of q and k",
        olmo(2),
        seed=14,
    ),
    case(
        "olmo3",
        "as olmo2, three layers of four with a window and plain rope, yarn in the fourth",
        olmo(
            3,
            num_hidden_layers=4,
            rope_scaling={
                "attention_factor": 1.1875,
                "beta_fast": 8.0,
                "beta_slow": 0.5,
                "factor": 8.0,
                "original_max_position_embeddings": 64,
                "rope_type": "yarn",
            },
            sliding_window=20,
        ),
        seed=11,
    ),
    case(
        "olmo3_v5",
        "transformers 5 keys: layer_types and a rope for each kind",
        without(
            olmo(
                3,
                dtype="bfloat16",
                layer_types=[FULL, SLIDING],
                rope_parameters={
                    FULL: {
                        "factor": 4.0,
                        "original_max_position_embeddings": 64,
                        "rope_theta": 500000.0,
                        "rope_type": "yarn",
                    },
                    SLIDING: {"rope_theta": 10000.0, "rope_type": "default"},
                },
                sliding_window=24,
            ),
            "torch_dtype",
            "rope_theta",
            "rope_scaling",
        ),
        seed=8,
    ),
)

PHIS = (
    case(
        "phi3_window",
        "q, k and v in one tensor, gate and up in another, a window in every layer",
        phi3(num_key_value_heads=2, sliding_window=20),
        seed=30,
    ),
    case(
        "phi3_partial",
        "rope on three quarters of each head, grouped heads, tied head",
        phi4_mini(),
        seed=16,
    ),
    case(
        "phi3_longrope_short",
        "longrope (as its first files spell it) below the original length: short factors",
        phi3(
            max_position_embeddings=896,
            original_max_position_embeddings=224,
            rope_scaling={
                "long_factor": factors(1.5, 24.0, 16),
                "original_max_position_embeddings": 224,
                "short_factor": factors(1.0, 3.0, 16),
                "type": "su",
            },
        ),
        seed=7,
    ),
    case(
        "phi3_longrope_long",
        "longrope beyond the original length, on three quarters of each head: long factors; of all "
        "tokens, because at position 0 nothing turns",
        phi4_mini(
            original_max_position_embeddings=1,
            rope_scaling={
                "attention_factor": 1.19,
                "long_factor": factors(1.5, 24.0, 12),
                "short_factor": factors(1.0, 3.0, 12),
                "type": "longrope",
            },
        ),
        seed=28,
    ),
)

HYBRIDS = (
    case(
        "smollm3",
        "a list says which layers have rope; tied head",
        smollm3(no_rope_layers=[1, 0, 1], tie_word_embeddings=True, vocab_size=263),
        seed=15,
    ),
    case(
        "smollm3_window",
        "every second layer without rope, and these have the window; biases, untied",
        smollm3(
            attention_bias=True,
            mlp_bias=True,
            no_rope_layer_interval=2,
            sliding_window=20,
            use_sliding_window=True,
            vocab_size=223,
        ),
        seed=5,
    ),
    case(
        "exaone4",
        "norms behind the blocks, norm on q and k, full layers without rope, llama3 rope",
        exaone4(
            layer_types=[SLIDING, SLIDING, SLIDING, FULL],
            num_hidden_layers=4,
            rope_scaling={
                "factor": 16.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 64,
                "rope_type": "llama3",
            },
            sliding_window=20,
            sliding_window_pattern="LLLG",
        ),
        seed=15,
    ),
    case(
        "exaone4_full",
        "no windows, so that every layer has rope; tied head, transformers 5 keys",
        v5_style(
            exaone4(
                layer_types=[FULL, FULL],
                sliding_window=None,
                sliding_window_pattern=None,
                tie_word_embeddings=True,
            ),
            rope_type="default",
        ),
        seed=47,
    ),
    case(
        "cohere2",
        "attention and MLP side by side behind one layer norm, full layers without rope",
        cohere2(),
        seed=37,
    ),
    case(
        "cohere2_v5",
        "transformers 5 keys with layer_types; biases on q, k, v and o",
        without(
            v5_style(
                cohere2(
                    attention_bias=True,
                    layer_types=[FULL, SLIDING],
                    num_hidden_layers=2,
                    num_key_value_heads=1,
                ),
                rope_type="default",
            ),
            "sliding_window_pattern",
            "layer_switch",
            "rope_scaling",
        ),
        seed=3,
    ),
)

OTHERS = (
    case(
        "granite",
        "scales on embeddings, branches, scores and logits; tied head",
        base(
            "GraniteForCausalLM",
            "granite",
            **SMALL,
            attention_bias=False,
            attention_dropout=0.1,
            attention_multiplier=0.15,
            embedding_multiplier=6.5,
            logits_scaling=3.0,
            mlp_bias=False,
            pad_token_id=0,
            residual_multiplier=0.4,
            rope_scaling=None,
            tie_word_embeddings=True,
            vocab_size=269,
        ),
        seed=4,
    ),
    case(
        "glm4",
        "norms around both blocks, pairs rotated in the first half of each head, biases on q, k, v",
        glm4(),
        generation={"bos_token_id": 1, "eos_token_id": [2, 3]},
        seed=6,
    ),
    case(
        "glm4_v5",
        "transformers 5 keys: the rotated part stands in rope_parameters; no biases",
        without(
            v5_style(
                glm4(attention_bias=False, head_dim=48, num_attention_heads=2),
                partial_rotary_factor=0.25,
                rope_type="default",
            ),
            "partial_rotary_factor",
        ),
        generation={"bos_token_id": 1, "eos_token_id": [2, 3]},
        seed=4,
    ),
    case(
        "seed_oss",
        "biases on q, k and v by their key, more query rows than the hidden size has",
        base(
            "SeedOssForCausalLM",
            "seed_oss",
            **SMALL,
            attention_bias=True,
            attention_dropout=0.1,
            attention_out_bias=False,
            head_dim=32,
            mlp_bias=False,
            num_key_value_heads=1,
            pad_token_id=1,
            residual_dropout=0.1,
            rms_norm_eps=1e-6,
            rope_scaling={"rope_type": "default"},
            rope_theta=10000000.0,
            vocab_size=211,
        ),
        seed=14,
    ),
    case(
        "ministral3",
        "yarn, and queries that grow with their position beyond the original length",
        without(
            base(
                "Ministral3ForCausalLM",
                "ministral3",
                **SMALL,
                attention_dropout=0.0,
                head_dim=32,
                num_key_value_heads=1,
                rope_parameters={
                    "beta_fast": 32.0,
                    "beta_slow": 1.0,
                    "factor": 16.0,
                    "llama_4_scaling_beta": 0.25,
                    "max_position_embeddings": 512,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                    "original_max_position_embeddings": 32,
                    "rope_theta": 1000000.0,
                    "rope_type": "yarn",
                    "type": "yarn",
                },
                sliding_window=None,
                vocab_size=271,
            ),
            "rope_theta",
        ),
        seed=7,
    ),
    case(
        "hunyuan_v1_dense",
        "norm on q and k behind the rotation, alpha in a rope that is dynamic by name alone",
        base(
            "HunYuanDenseV1ForCausalLM",
            "hunyuan_v1_dense",
            **SMALL,
            attention_bias=False,
            attention_dropout=0.1,
            attention_head_dim=32,
            cla_share_factor=2,
            head_dim=32,
            max_position_embeddings=96,
            mlp_bias=False,
            num_experts=1,
            num_key_value_heads=1,
            pad_token_id=0,
            rope_scaling={
                "alpha": 50.0,
                "beta_fast": 32,
                "beta_slow": 1,
                "factor": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "type": "dynamic",
            },
            tie_word_embeddings=True,
            use_cla=False,
            use_qk_norm=True,
            vocab_size=277,
        ),
        seed=86,
    ),
)

LAYER_CASES: tuple[Case, ...] = (*GEMMAS, *GEMMA4_CASES, *OLMOS, *PHIS, *HYBRIDS, *OTHERS)

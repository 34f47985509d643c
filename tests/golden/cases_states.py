"""The golden cases of families whose layers keep a state. No size is a published one."""

from __future__ import annotations

from typing import Any

from case_types import Case, Experts, Twin
from state_configs import (
    FULL,
    LINEAR,
    delta_heads,
    falcon_h1,
    granite,
    lfm2,
    lfm2_moe,
    nemotron_h,
    nemotron_h_moe,
    qwen3_5,
    qwen3_5_moe,
    qwen3_next,
    qwen_rope,
    wrapped,
)

WITH_EXPERTS = qwen3_5_moe(
    full_attention_interval=2,
    num_attention_heads=2,
    num_hidden_layers=4,
    num_key_value_heads=1,
    vocab_size=101,
    **delta_heads((2, 16), (2, 8)),
)


def case(name: str, about: str, config: dict[str, Any], **changes: Any) -> Case:
    return Case(name, about, "bfloat16", config, **changes)


LFM2S = (
    case(
        "lfm2",
        "short gated convolutions around attention; the width of MLPs is computed, tied head",
        lfm2(
            full_attn_idxs=[1],
            num_hidden_layers=3,
            vocab_size=193,
        ),
    ),
    case(
        "lfm2_bias",
        "biases in convolutions, a longer kernel, layer_types, MLPs as wide as said, no tie",
        lfm2(
            block_auto_adjust_ff_dim=False,
            conv_L_cache=4,
            conv_bias=True,
            layer_types=[FULL, "conv", FULL],
            num_hidden_layers=3,
            tie_embedding=False,
            vocab_size=103,
        ),
    ),
    case(
        "lfm2_moe",
        "sigmoid scores with a bias choose experts, the first layer is dense",
        lfm2_moe(
            layer_types=["conv", "conv", FULL],
            num_hidden_layers=3,
            vocab_size=107,
        ),
        experts=Experts(correction=(0.0, 0.1)),
        seed=1,
    ),
)

QWENS = (
    case(
        "qwen3_5",
        "gated delta rule, three value heads for each key head; attention's gate, partial rope",
        qwen3_5(
            layer_types=[LINEAR, LINEAR, FULL, LINEAR, FULL],
            num_hidden_layers=5,
            vocab_size=97,
            **delta_heads((2, 8), (6, 8)),
        ),
        mtp=True,
    ),
    case(
        "qwen3_5_last",
        "a state in the last layer, heads of 32, full_attention_interval, tied head",
        qwen3_5(
            full_attention_interval=2,
            head_dim=16,
            num_hidden_layers=3,
            rope_parameters=qwen_rope(mrope_section=[1, 1, 0], partial_rotary_factor=0.5),
            tie_word_embeddings=True,
            vocab_size=109,
            **delta_heads((1, 32), (2, 32)),
        ),
    ),
    case(
        "qwen3_5_moe",
        "experts behind states, a shared one with a gate; keys wider than values",
        WITH_EXPERTS,
        twins=(Twin("qwen3_5_moe_wrapped", "wrapped", wrapped(WITH_EXPERTS, "qwen3_5_moe")),),
        experts=Experts(),
        mtp=True,
    ),
    case(
        "qwen3_next",
        "q, k, v and z of each key head side by side; a dense layer; old rope keys",
        qwen3_next(
            layer_types=[LINEAR, FULL, LINEAR],
            vocab_size=113,
            **delta_heads((2, 8), (4, 16)),
        ),
        experts=Experts(),
        mtp=True,
    ),
)

GRANITES = (
    case(
        "granite_hybrid",
        "Mamba-2 around attention without rope, experts beside an MLP that all rows go through",
        granite(
            intermediate_size=24,
            layer_types=["mamba", "attention", "mamba"],
            num_experts_per_tok=2,
            num_local_experts=6,
            vocab_size=127,
        ),
        experts=Experts(),
    ),
    case(
        "granite_hybrid_groups",
        "two groups of heads, heads of 8 and states of 24, rope, no experts; untied head",
        granite(
            layer_types=["mamba", "mamba", "attention"],
            mamba_conv_bias=False,
            mamba_d_conv=3,
            mamba_d_head="auto",
            mamba_d_state=24,
            mamba_n_groups=2,
            mamba_n_heads=16,
            position_embedding_type="rope",
            tie_word_embeddings=False,
            vocab_size=131,
        ),
    ),
)

NEMOTRONS = (
    case(
        "nemotron_h",
        "layers of one block each: Mamba-2, attention without rope, MLPs with relu^2 and no gate",
        nemotron_h("M-M*-", vocab_size=137),
    ),
    case(
        "nemotron_h_moe",
        "experts with relu^2 on rows of a latent width, a shared one, biases; experts come first",
        nemotron_h_moe(
            ["moe", LINEAR, FULL, "mlp", "moe"],
            mlp_bias=True,
            moe_latent_size=40,
            routed_scaling_factor=1.5,
            use_bias=True,
            use_conv_bias=False,
            vocab_size=139,
        ),
        experts=Experts(correction=(0.0, 0.1)),
    ),
)

FALCONS = (
    case(
        "falcon_h1",
        "attention and Mamba-2 side by side, factors everywhere, no norm behind the scan",
        falcon_h1(vocab_size=149),
    ),
    case(
        "falcon_h1_norm",
        "a norm before the gate, two groups, all biases, states of 24, tied head",
        falcon_h1(
            attention_bias=True,
            mamba_d_head="auto",
            mamba_d_ssm=None,
            mamba_d_state=24,
            mamba_n_groups=2,
            mamba_n_heads=8,
            mamba_norm_before_gate=True,
            mamba_proj_bias=True,
            mamba_rms_norm=True,
            mlp_bias=True,
            projectors_bias=True,
            tie_word_embeddings=True,
            vocab_size=151,
        ),
    ),
)

STATE_CASES: tuple[Case, ...] = (*LFM2S, *QWENS, *GRANITES, *NEMOTRONS, *FALCONS)

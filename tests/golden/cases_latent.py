"""The golden cases of latent attention. No size is a published one."""

from __future__ import annotations

from typing import Any

from case_types import Case, Experts, base
from layer_configs import without

SIZES = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "first_k_dense_replace": 1,
    "hidden_size": 48,
    "intermediate_size": 64,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 16,
    "rms_norm_eps": 1e-2,  # the norms within attention don't have it
    "topk_group": 1,
    "v_head_dim": 24,
}


def deepseek_v2(**changes: Any) -> dict[str, Any]:
    """V2-Lite's keys."""
    published = {
        "auto_map": {
            "AutoConfig": "configuration_deepseek.DeepseekV2Config",
            "AutoModel": "modeling_deepseek.DeepseekV2Model",
            "AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM",
        },
        "aux_loss_alpha": 0.001,
        "kv_lora_rank": 32,
        "moe_layer_freq": 1,
        "n_routed_experts": 4,
        "n_shared_experts": 2,
        "norm_topk_prob": False,
        "num_hidden_layers": 3,
        "pretraining_tp": 1,
        "q_lora_rank": None,
        "qk_rope_head_dim": 8,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 4,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 64,
            "type": "yarn",
        },
        "routed_scaling_factor": 1.5,
        "scoring_func": "softmax",
        "seq_aux": True,
        "topk_method": "greedy",
        "torch_dtype": "bfloat16",
    }
    return base("DeepseekV2ForCausalLM", "deepseek_v2", **SIZES | published | changes)


def deepseek_v3(**changes: Any) -> dict[str, Any]:
    """V3's keys."""
    published = {
        "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
        "ep_size": 1,
        "kv_lora_rank": 32,
        "moe_layer_freq": 1,
        "n_group": 4,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 3,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 40,
        "qk_rope_head_dim": 8,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 64,
            "type": "yarn",
        },
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_group": 2,
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
    }
    return base("DeepseekV3ForCausalLM", "deepseek_v3", **SIZES | published | changes)


def glm4_moe_lite(**changes: Any) -> dict[str, Any]:
    """4.7-Flash's keys."""
    published = {
        "dtype": "bfloat16",
        "kv_lora_rank": 40,
        "n_routed_experts": 5,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_hidden_layers": 3,
        "num_nextn_predict_layers": 1,
        "partial_rotary_factor": 1.0,
        "q_lora_rank": 24,
        "qk_rope_head_dim": 12,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "routed_scaling_factor": 1.8,
        "topk_method": "noaux_tc",
    }
    config = base("Glm4MoeLiteForCausalLM", "glm4_moe_lite", **SIZES | published | changes)
    return without(config, "initializer_range")


LATENT_CASES = (
    Case(
        "deepseek_v2",
        "latent attention, queries as they are, yarn that scales scores, experts by a softmax",
        "bfloat16",
        deepseek_v2(vocab_size=103),
        experts=Experts(),
        seed=2,
    ),
    Case(
        "deepseek_v2_groups",
        "V2's: latent queries, experts of the two best of three groups, each judged by its best",
        "float32",
        deepseek_v2(
            n_group=3,
            n_routed_experts=6,
            num_experts_per_tok=3,
            num_hidden_layers=2,
            q_lora_rank=24,
            routed_scaling_factor=4.0,
            topk_group=2,
            topk_method="group_limited_greedy",
            vocab_size=113,
        ),
        experts=Experts(),
    ),
    Case(
        "deepseek_v3",
        "experts of the two best of four groups, yarn that scales scores, a block for guesses",
        "bfloat16",
        deepseek_v3(vocab_size=127),
        experts=Experts(correction=(0.0, 0.1)),
        mtp=True,
        seed=1,
    ),
    Case(
        "glm4_moe_lite",
        "latent queries, rows of 52 numbers, experts by sigmoids and a correction, a block for"
        " guesses",
        "bfloat16",
        glm4_moe_lite(vocab_size=107),
        experts=Experts(correction=(0.0, 0.1)),
        mtp=True,
    ),
    Case(
        "glm4_moe_lite_v5",
        "transformers 5 keys, biases, yarn that scales cos and sin, a dense layer last, tied head",
        "bfloat16",
        without(
            glm4_moe_lite(
                attention_bias=True,
                mlp_layer_types=["dense", "sparse", "dense"],
                norm_topk_prob=False,
                qk_head_dim=24,
                qk_rope_head_dim=8,
                rope_interleave=True,
                rope_parameters={
                    "factor": 8.0,
                    "mscale": 1.4,
                    "mscale_all_dim": 0.6,
                    "original_max_position_embeddings": 32,
                    "rope_theta": 20000.0,
                    "rope_type": "yarn",
                },
                tie_word_embeddings=True,
                transformers_version="5.23.0",
                v_head_dim=8,
                vocab_size=109,
            ),
            "first_k_dense_replace",
            "num_nextn_predict_layers",
            "partial_rotary_factor",
            "rope_scaling",
            "rope_theta",
            "topk_method",
        ),
        experts=Experts(correction=(0.0, 0.1)),
    ),
)

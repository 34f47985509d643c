"""The golden cases of families with experts. No size is a published one."""

from __future__ import annotations

from typing import Any

from case_types import Case, Experts, Twin, base, v5_style
from cases_gemma4 import GEMMA4_MOE_CASES
from cases_gpt_oss import GPT_OSS_CASES
from cases_latent import LATENT_CASES
from layer_configs import without


def ernie_moe(storage_key: str = "torch_dtype", **changes: Any) -> dict[str, Any]:
    """As Baidu publishes it; `storage_key` is `dtype` in the Paddle layout."""
    published = {
        "hidden_size": 48,
        "intermediate_size": 72,
        "pad_token_id": 0,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "rope_scaling": None,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "use_bias": False,
        "use_cache": False,
        storage_key: "bfloat16",
        "moe_gate": "topk",
        "moe_capacity": [9, 9, 9],
        "moe_intermediate_size": 40,
        "moe_k": 3,
        "moe_layer_interval": 1,
        "moe_layer_start_index": 1,
        "moe_num_experts": 9,
        "moe_num_shared_experts": 2,
        "moe_use_aux_free": True,
    }
    config = base("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", **published)
    del config["initializer_range"]
    return config | changes


def qwen3_moe(storage: str, **changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "decoder_sparse_step": 1,
        "head_dim": 32,
        "hidden_size": 48,
        "intermediate_size": 80,
        "max_window_layers": 2,
        "mlp_only_layers": [],
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "num_experts": 20,
        "num_experts_per_tok": 4,
        "output_router_logits": False,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.001,
        "sliding_window": None,
        "torch_dtype": storage,
        "use_sliding_window": False,
    }
    return base("Qwen3MoeForCausalLM", "qwen3_moe", **published | changes)


def qwen2_moe(storage: str, **changes: Any) -> dict[str, Any]:
    published = {
        "attention_dropout": 0.0,
        "decoder_sparse_step": 1,
        "hidden_size": 48,
        "intermediate_size": 80,
        "max_window_layers": 2,
        "moe_intermediate_size": 40,
        "norm_topk_prob": False,
        "num_attention_heads": 3,
        "num_experts": 7,
        "num_experts_per_tok": 3,
        "num_key_value_heads": 3,
        "output_router_logits": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": 56,
        "sliding_window": 32,
        "torch_dtype": storage,
        "use_sliding_window": False,
    }
    return base("Qwen2MoeForCausalLM", "qwen2_moe", **published | changes)


def mixtral(storage: str, **changes: Any) -> dict[str, Any]:
    published = {
        "attention_dropout": 0.0,
        "hidden_size": 48,
        "intermediate_size": 56,
        "num_attention_heads": 3,
        "num_experts_per_tok": 2,
        "num_key_value_heads": 1,
        "num_local_experts": 5,
        "output_router_logits": False,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.02,
        "sliding_window": None,
        "torch_dtype": storage,
    }
    return base("MixtralForCausalLM", "mixtral", **published | changes)


def glm4_moe(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": True,
        "attention_dropout": 0.0,
        "first_k_dense_replace": 1,
        "head_dim": 16,
        "hidden_size": 48,
        "intermediate_size": 56,
        "moe_intermediate_size": 24,
        "n_group": 1,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 4,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "num_nextn_predict_layers": 1,
        "partial_rotary_factor": 0.5,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "routed_scaling_factor": 2.5,
        "topk_group": 1,
        "torch_dtype": "bfloat16",
        "use_qk_norm": False,
        "vocab_size": 157,
    }
    return base("Glm4MoeForCausalLM", "glm4_moe", **published | changes)


ERNIE_A = {
    "num_hidden_layers": 4,
    "moe_layer_end_index": 2,
    "num_nextn_predict_layers": 1,
}
ERNIE_B = {
    "num_hidden_layers": 4,
    "tie_word_embeddings": False,
    "moe_k": 2,
    "moe_layer_end_index": -1,
    "moe_layer_interval": 2,
    "moe_layer_start_index": 0,
    "moe_norm_min": 0.6,
    "moe_num_shared_experts": 0,
    "moe_use_aux_free": False,
}

MOE_CASES = (
    Case(
        "ernie4_5_moe",
        "experts in layers 1 and 2 of 4, two shared ones, a correction bias, a block for guesses",
        "bfloat16",
        ernie_moe(**ERNIE_A),
        twins=(Twin("ernie4_5_moe_paddle", "paddle", ernie_moe("dtype", **ERNIE_A)),),
        experts=Experts(correction=(0.0, 0.05)),
        mtp=True,
        seed=3,
    ),
    Case(
        "ernie4_5_moe_interval",
        "experts in every second layer, none shared, no correction bias, a moe_norm_min that acts",
        "bfloat16",
        ernie_moe(**ERNIE_B),
        twins=(Twin("ernie4_5_moe_interval_paddle", "paddle", ernie_moe("dtype", **ERNIE_B)),),
        experts=Experts(),
    ),
    Case(
        "ernie4_5_moe_ties",
        "a large, almost constant correction bias, and two experts that always tie",
        "float32",
        ernie_moe(
            torch_dtype="float32",
            num_hidden_layers=2,
            moe_k=4,
            moe_layer_start_index=0,
            moe_num_experts=11,
            moe_num_shared_experts=1,
        ),
        experts=Experts(correction=(40.0, 0.01), equal=(3, 5)),
        seed=109,
    ),
    Case(
        "qwen3_moe",
        "20 experts, a dense layer by mlp_only_layers, norm_topk_prob, head_dim 32 with hidden 48",
        "bfloat16",
        qwen3_moe("bfloat16", num_hidden_layers=3, mlp_only_layers=[1]),
        twins=(
            Twin(
                "qwen3_moe_fused",
                "fused_experts",
                v5_style(
                    qwen3_moe("bfloat16", num_hidden_layers=3, mlp_only_layers=[1]),
                    rope_type="default",
                ),
            ),
        ),
        experts=Experts(),
    ),
    Case(
        "qwen3_moe_one",
        "one expert per token of 7, its weight as it is, every second layer dense, tied head,"
        " transformers 5 keys",
        "float32",
        v5_style(
            {
                ("num_local_experts" if key == "num_experts" else key): value
                for key, value in qwen3_moe(
                    "float32",
                    num_hidden_layers=4,
                    decoder_sparse_step=2,
                    head_dim=16,
                    norm_topk_prob=False,
                    num_experts=7,
                    num_experts_per_tok=1,
                    tie_word_embeddings=True,
                ).items()
            },
            rope_type="default",
        ),
        experts=Experts(),
    ),
    Case(
        "qwen3_moe_window",
        "a sliding window in all layers, attention_bias, two of six experts",
        "bfloat16",
        qwen3_moe(
            "bfloat16",
            attention_bias=True,
            num_experts=6,
            num_experts_per_tok=2,
            use_sliding_window=True,
            sliding_window=20,
        ),
        experts=Experts(),
    ),
    Case(
        "qwen2_moe",
        "a gated shared expert, weights as they are, a dense layer, bias on q, k and v",
        "bfloat16",
        qwen2_moe("bfloat16", num_hidden_layers=3, mlp_only_layers=[0]),
        experts=Experts(),
    ),
    Case(
        "qwen2_moe_norm",
        "norm_topk_prob, every second layer dense, no bias (qkv_bias), tied head",
        "float32",
        qwen2_moe(
            "float32",
            num_hidden_layers=3,
            decoder_sparse_step=2,
            moe_intermediate_size=36,
            norm_topk_prob=True,
            num_experts=18,
            num_experts_per_tok=5,
            qkv_bias=False,
            tie_word_embeddings=True,
        ),
        experts=Experts(),
    ),
    Case(
        "mixtral",
        "block_sparse_moe names, two shards with an index",
        "bfloat16",
        mixtral("bfloat16"),
        shards=2,
        experts=Experts(),
        seed=5,
    ),
    Case(
        "mixtral_window",
        "a sliding window of 24 tokens, head_dim 32, three of six experts",
        "bfloat16",
        mixtral(
            "bfloat16",
            head_dim=32,
            num_experts_per_tok=3,
            num_local_experts=6,
            sliding_window=24,
        ),
        experts=Experts(),
    ),
    Case(
        "glm4_moe",
        "sigmoid scores with a bias, a shared expert, a dense layer first, half of a head rotated,"
        " bias on q, k and v, a block for guesses",
        "bfloat16",
        glm4_moe(),
        twins=(Twin("glm4_moe_fused", "fused_experts", glm4_moe()),),
        experts=Experts(correction=(0.0, 0.1)),
        mtp=True,
    ),
    Case(
        "glm4_moe_groups",
        "two of four groups of experts, norms of q and k, weights as they are, two shared experts,"
        " transformers 5 keys",
        "float32",
        v5_style(
            without(
                glm4_moe(
                    attention_bias=False,
                    first_k_dense_replace=0,
                    head_dim=32,
                    moe_intermediate_size=16,
                    n_group=4,
                    n_routed_experts=12,
                    n_shared_experts=2,
                    norm_topk_prob=False,
                    num_hidden_layers=2,
                    num_nextn_predict_layers=0,
                    routed_scaling_factor=0.7,
                    topk_group=2,
                    torch_dtype="float32",
                    use_qk_norm=True,
                ),
                "partial_rotary_factor",
                "rope_scaling",
            ),
            partial_rotary_factor=0.5,
            rope_type="default",
        ),
        experts=Experts(correction=(0.0, 0.1)),
    ),
    *GPT_OSS_CASES,
    *GEMMA4_MOE_CASES,
    *LATENT_CASES,
)

"""config.json of families whose layers keep a state, with the keys of published files."""

from __future__ import annotations

from typing import Any

from case_types import base
from layer_configs import without

LINEAR, FULL = "linear_attention", "full_attention"


def qwen_rope(**changes: Any) -> dict[str, Any]:
    return {
        "mrope_interleaved": True,
        "mrope_section": [2, 1, 1],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
        **changes,
    }


def delta_heads(key: tuple[int, int], value: tuple[int, int]) -> dict[str, int]:
    """Numbers of heads, and how many numbers each has."""
    return {
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": key[1],
        "linear_num_key_heads": key[0],
        "linear_num_value_heads": value[0],
        "linear_value_head_dim": value[1],
    }


def qwen3_5(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "head_dim": 32,
        "mamba_ssm_dtype": "float32",
        "mlp_only_layers": [],
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "rms_norm_eps": 1e-6,
        "rope_parameters": qwen_rope(),
    }
    config = base("Qwen3_5ForCausalLM", "qwen3_5_text", **published)
    return without(config, "rope_theta") | changes


def qwen3_5_moe(**changes: Any) -> dict[str, Any]:
    experts = {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 24,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": 40,
    }
    return without(qwen3_5(**experts), "intermediate_size") | changes


def wrapped(text: dict[str, Any], kind: str) -> dict[str, Any]:
    """The same model in one that sees pictures: `kind` is the model_type of that."""
    name = text["architectures"][0].replace("CausalLM", "ConditionalGeneration")
    return {
        "architectures": [name],
        "image_token_id": 90,
        "model_type": kind,
        "text_config": without(text, "architectures"),
        "tie_word_embeddings": False,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": 91,
        "vision_config": {
            "deepstack_visual_indexes": [],
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 24,
            "model_type": kind,
            "num_heads": 2,
            "num_position_embeddings": 16,
            "out_hidden_size": text["hidden_size"],
            "patch_size": 2,
        },
        "vision_end_token_id": 93,
        "vision_start_token_id": 92,
    }


def qwen3_next(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "decoder_sparse_step": 1,
        "head_dim": 32,
        "mlp_only_layers": [1],
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "num_attention_heads": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 3,
        "num_key_value_heads": 1,
        "output_router_logits": False,
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10000000,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": 40,
        "torch_dtype": "bfloat16",
    }
    return base("Qwen3NextForCausalLM", "qwen3_next", **published | changes)


def lfm2(**changes: Any) -> dict[str, Any]:
    published = {
        "block_auto_adjust_ff_dim": True,
        "block_dim": 64,
        "block_ffn_dim_multiplier": 1.0,
        "block_mlp_init_scale": 1.0,
        "block_multiple_of": 16,
        "block_norm_eps": 1e-05,
        "block_out_init_scale": 1.0,
        "block_use_swiglu": True,
        "block_use_xavier_init": True,
        "conv_L_cache": 3,
        "conv_bias": False,
        "conv_dim": 64,
        "conv_dim_out": 64,
        "conv_use_xavier_init": True,
        "norm_eps": 1e-05,
        "num_heads": 4,
        "rope_theta": 1000000.0,
        "tie_embedding": True,
        "torch_dtype": "bfloat16",
        "use_pos_enc": True,
    }
    config = base("Lfm2ForCausalLM", "lfm2", **published)
    return without(config, "rms_norm_eps", "hidden_act", "tie_word_embeddings") | changes


def lfm2_moe(**changes: Any) -> dict[str, Any]:
    published = {
        "conv_L_cache": 3,
        "conv_bias": False,
        "dtype": "bfloat16",
        "moe_intermediate_size": 24,
        "norm_eps": 1e-05,
        "norm_topk_prob": True,
        "num_dense_layers": 1,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "routed_scaling_factor": 1.0,
        "tie_word_embeddings": True,
        "use_expert_bias": True,
    }
    config = base("Lfm2MoeForCausalLM", "lfm2_moe", **published)
    return without(config, "rms_norm_eps", "hidden_act", "rope_theta") | changes


def granite(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attention_multiplier": 0.15,
        "embedding_multiplier": 6.5,
        "init_method": "mup",
        "logits_scaling": 3.0,
        "mamba_chunk_size": 32,
        "mamba_conv_bias": True,
        "mamba_d_conv": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "mamba_n_heads": 8,
        "mamba_proj_bias": False,
        "normalization_function": "rmsnorm",
        "num_experts_per_tok": 0,
        "num_hidden_layers": 3,
        "num_local_experts": 0,
        "output_router_logits": False,
        "position_embedding_type": "nope",
        "residual_multiplier": 0.4,
        "rope_scaling": None,
        "router_aux_loss_coef": 0.0,
        "shared_intermediate_size": 80,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    return base("GraniteMoeHybridForCausalLM", "granitemoehybrid", **published | changes)


def nemotron_h(pattern: str, **changes: Any) -> dict[str, Any]:
    """Nano v2's keys; `pattern` has a letter for each layer."""
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "chunk_size": 32,
        "conv_kernel": 4,
        "expand": 2,
        "head_dim": 16,
        "hidden_dropout": 0.0,
        "hybrid_override_pattern": pattern,
        "layer_norm_epsilon": 1e-05,
        "mamba_head_dim": 16,
        "mamba_hidden_act": "silu",
        "mamba_num_heads": 8,
        "mamba_proj_bias": False,
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "n_groups": 2,
        "num_hidden_layers": len(pattern),
        "num_logits_to_keep": 1,
        "rescale_prenorm_residual": True,
        "residual_in_fp32": False,
        "sliding_window": None,
        "ssm_state_size": 16,
        "time_step_floor": 0.0001,
        "time_step_limit": [0.0, float("inf")],
        "time_step_max": 0.1,
        # transformers takes this for a limit, but not everywhere: here it is below any step.
        "time_step_min": 1e-12,
        "torch_dtype": "bfloat16",
        "use_bias": False,
        "use_conv_bias": True,
        "use_mamba_kernels": True,
    }
    config = base("NemotronHForCausalLM", "nemotron_h", **published)
    return without(config, "hidden_act", "rms_norm_eps", "rope_theta") | changes


def nemotron_h_moe(types: list[str], **changes: Any) -> dict[str, Any]:
    """With experts, and the keys that transformers 5 writes."""
    experts = {
        "dtype": "bfloat16",
        "layers_block_type": types,
        "moe_intermediate_size": 24,
        "moe_latent_size": None,
        "moe_shared_expert_intermediate_size": 40,
        "moe_shared_expert_overlap": True,
        "n_group": 1,
        "n_routed_experts": 6,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": 2,
        "num_nextn_predict_layers": 0,
        "routed_scaling_factor": 1.0,
        "topk_group": 1,
    }
    config = without(
        nemotron_h("", **experts), "hybrid_override_pattern", "num_hidden_layers", "torch_dtype"
    )
    return config | changes


def falcon_h1(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attention_in_multiplier": 1.2,
        "attention_out_multiplier": 0.9375,
        "attn_layer_indices": None,
        "embedding_multiplier": 5.656854249492381,
        "head_dim": 16,
        "key_multiplier": 0.5,
        "lm_head_multiplier": 0.3,
        "mamba_chunk_size": 32,
        "mamba_conv_bias": True,
        "mamba_d_conv": 4,
        "mamba_d_head": 16,
        "mamba_d_ssm": 96,
        "mamba_d_state": 16,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "mamba_n_heads": 6,
        "mamba_norm_before_gate": False,
        "mamba_proj_bias": False,
        "mamba_rms_norm": False,
        "mamba_use_mlp": True,
        "mlp_bias": False,
        "mlp_expansion_factor": 8,
        "mlp_multipliers": [0.7, 0.6],
        "num_logits_to_keep": 1,
        "projectors_bias": False,
        "rope_scaling": None,
        "rope_theta": 100000000000.0,
        "ssm_in_multiplier": 1.25,
        "ssm_multipliers": [0.35, 0.25, 0.8, 0.5, 0.6],
        "ssm_out_multiplier": 0.45,
        "time_step_floor": 0.0001,
        "time_step_max": 0.1,
        "time_step_min": 0.001,
        "time_step_rank": "auto",
        "torch_dtype": "bfloat16",
    }
    return base("FalconH1ForCausalLM", "falcon_h1", **published | changes)

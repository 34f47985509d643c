"""config.json of families whose layers differ from Llama's, with the keys of published files."""

from __future__ import annotations

from typing import Any

from case_types import base

SMALL = {"intermediate_size": 64, "hidden_size": 64, "torch_dtype": "bfloat16"}


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def gemma(architecture: str, model_type: str, **changes: Any) -> dict[str, Any]:
    """A hidden size whose root bfloat16 and float32 have to round; no key says that it is tied."""
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": 16,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 80,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-6,
    }
    config = base(architecture, model_type, **SMALL | published | changes)
    return without(config, "tie_word_embeddings", "hidden_act")


def gemma2(**changes: Any) -> dict[str, Any]:
    published = {
        "attn_logit_softcapping": 2.5,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": 0.5,
        "hidden_act": "gelu_pytorch_tanh",
        "num_hidden_layers": 3,
        "query_pre_attn_scalar": 20,
        "sliding_window": 24,
        "vocab_size": 227,
    }
    return gemma("Gemma2ForCausalLM", "gemma2") | published | changes


def gemma3(**changes: Any) -> dict[str, Any]:
    published = {
        "attn_logit_softcapping": None,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": None,
        "vocab_size": 229,
    }
    return gemma("Gemma3ForCausalLM", "gemma3_text") | published | changes


def smollm3(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "max_window_layers": 28,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "num_hidden_layers": 3,
        "pad_token_id": 0,
        "pretraining_tp": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    return base("SmolLM3ForCausalLM", "smollm3", **SMALL | published | changes)


def olmo(version: int, **changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "pad_token_id": 1,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 500000,
        "vocab_size": 233,
    }
    return base(f"Olmo{version}ForCausalLM", f"olmo{version}", **SMALL | published | changes)


def phi3(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "embd_pdrop": 0.0,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "original_max_position_embeddings": 512,
        "pad_token_id": 0,
        "resid_pdrop": 0.0,
        "rope_scaling": None,
        "sliding_window": None,
        "vocab_size": 239,
    }
    return base("Phi3ForCausalLM", "phi3", **SMALL | published | changes)


def phi4_mini(**changes: Any) -> dict[str, Any]:
    published = {
        "full_attn_mod": 1,
        "interpolate_factor": 1,
        "lm_head_bias": False,
        "mlp_bias": False,
        "num_key_value_heads": 1,
        "partial_rotary_factor": 0.75,
        "sliding_window": 262144,
        "tie_word_embeddings": True,
    }
    return phi3(**published | changes)


def factors(first: float, last: float, count: int) -> list[float]:
    """As long as a longrope's list must be; not in a ratio that a theta could make up for."""
    return [round(first + (last - first) * (i / (count - 1)) ** 2, 3) for i in range(count)]


def exaone4(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_dropout": 0.0,
        "head_dim": 16,
        "rope_theta": 1000000,
        "vocab_size": 241,
    }
    return base("Exaone4ForCausalLM", "exaone4", **SMALL | published | changes)


def glm4(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": [2, 3],
        "head_dim": 32,
        "num_key_value_heads": 1,
        "pad_token_id": 2,
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1.5625e-07,
        "vocab_size": 251,
    }
    return base("Glm4ForCausalLM", "glm4", **SMALL | published | changes)


def cohere2(**changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "cache_implementation": "hybrid",
        "layer_norm_eps": 1e-05,
        "layer_switch": 3,
        "logit_scale": 0.25,
        "num_hidden_layers": 4,
        "order_of_interleaved_layers": "local_attn_first",
        "pad_token_id": 0,
        "position_embedding_type": "rope_gptj",
        "rope_scaling": None,
        "rope_theta": 50000,
        "rotary_pct": 1.0,
        "sliding_window": 20,
        "sliding_window_pattern": 3,
        "tie_word_embeddings": True,
        "use_embedding_sharing": True,
        "use_gated_activation": True,
        "use_parallel_block": True,
        "use_parallel_embedding": True,
        "vocab_size": 257,
    }
    config = base("Cohere2ForCausalLM", "cohere2", **SMALL | published | changes)
    return without(config, "rms_norm_eps")

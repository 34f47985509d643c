"""gpt-oss: sinks, experts with biases and a clamped gate; as numbers, and as MXFP4."""

from __future__ import annotations

from typing import Any

from case_types import Case, Experts, base


def gpt_oss(**changes: Any) -> dict[str, Any]:
    """As OpenAI publishes it. Gates of models as small as this one seldom reach a limit of 7."""
    published = {
        "attention_bias": True,
        "attention_dropout": 0.0,
        "experts_per_token": 2,
        "head_dim": 16,
        "hidden_size": 96,
        "initial_context_length": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_experts_per_tok": 2,
        "num_local_experts": 4,
        "output_router_logits": False,
        "pad_token_id": 0,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 64,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 8,
        "swiglu_limit": 1.5,
        "torch_dtype": "bfloat16",
    }
    return base("GptOssForCausalLM", "gpt_oss", **published | changes)


GPT_OSS_CASES = (
    Case(
        "gpt_oss",
        "sinks, biases everywhere, gate and up by turns, a window of 8 in layer 0, yarn that"
        " truncates nothing",
        "bfloat16",
        gpt_oss(intermediate_size=64),
        experts=Experts(),
        seed=1,
    ),
    Case(
        "gpt_oss_mxfp4",
        "experts as MXFP4 of any bytes, three blocks to a row, another slope of the gate",
        "bfloat16",
        gpt_oss(
            swiglu_alpha=1.2,
            vocab_size=97,
            quantization_config={
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
                "quant_method": "mxfp4",
            },
        ),
        experts=Experts(),
    ),
)

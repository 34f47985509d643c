"""Random weights whose greedy decoding wanders instead of repeating one token."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from case_types import Experts

# Residual inputs are small beside what the layers add, so that a model with a tied head does not
# simply echo its input, and so that a wrong rms_norm_eps shows in the logits.
EMBEDDING_STD = 0.06
LINEAR_GAIN = 2.0  # std = gain / sqrt(inputs): 0.25 at hidden 64, which makes routers decisive too
QUERY_KEY_GAIN = 1.6  # scores of std ~2.5: attention picks out tokens, so positions matter
HEAD_GAIN = 3.0
UNSCALED_GAIN = 0.4  # of queries and keys whose products aren't divided by anything
BIAS_STD = 0.3
STEP_GAIN = 1.0  # of what opens and closes states
DECAY_RANGE = (-1.0, 1.5)  # of logarithms: a token keeps from 98 to less than 1 % of a state
STEP_RANGE = (-3.0, 0.5)
SCALAR_RANGE = (0.6, 1.2)  # of what a whole layer is multiplied by
TABLE_STD = 0.3  # of what layers get of each token, which is multiplied like embeddings
WITH_NORMS_PLUS_ONE = ("gemma2", "gemma3_text", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")


def fill(
    model: torch.nn.Module, seed: int, storage: torch.dtype, experts: Experts | None = None
) -> None:
    """Sets every parameter to seeded random values that `storage` represents exactly.

    numpy draws the numbers: its generators give the same stream on every machine.
    """
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *stored_buffers(model)]:
            shape = tuple(parameter.shape)
            if is_correction(name):
                values = _correction(generator, shape, experts)
            else:
                values = _fitted(model.config, name, _draw(generator, name, shape))
            if experts and experts.equal and is_router(name):
                first, second = experts.equal
                per_expert = values.T if is_correction(name) else values
                per_expert[second] = per_expert[first]
            dtype = stored_dtype(model.config.model_type, name, storage)
            parameter.copy_(torch.from_numpy(values).to(dtype).to(parameter.dtype))


def mtp_block(config: dict[str, Any], seed: int, storage: torch.dtype) -> dict[str, torch.Tensor]:
    """ERNIE-4.5's block that guesses the token after the next one, as its PyTorch files name it.

    A dense layer of width intermediate_size, two norms, and a matrix that joins the embedding of
    the next token (first) with the hidden state. transformers does not load it.
    """
    hidden, width = config["hidden_size"], config["intermediate_size"]
    rows = hidden // config["num_attention_heads"]
    q, kv = rows * config["num_attention_heads"], rows * config["num_key_value_heads"]
    shapes = {
        "mtp_block.0.input_layernorm": (hidden,),
        "mtp_block.0.post_attention_layernorm": (hidden,),
        "mtp_block.0.self_attn.q_proj": (q, hidden),
        "mtp_block.0.self_attn.k_proj": (kv, hidden),
        "mtp_block.0.self_attn.v_proj": (kv, hidden),
        "mtp_block.0.self_attn.o_proj": (hidden, q),
        "mtp_block.0.mlp.gate_proj": (width, hidden),
        "mtp_block.0.mlp.up_proj": (width, hidden),
        "mtp_block.0.mlp.down_proj": (hidden, width),
        "mtp_emb_norm.0": (hidden,),
        "mtp_hidden_norm.0": (hidden,),
        "mtp_linear_proj.0": (hidden, 2 * hidden),
    }
    generator = np.random.default_rng([seed, 2])
    return {
        f"model.{name}.weight": torch.from_numpy(_draw(generator, name, shape)).to(storage)
        for name, shape in shapes.items()
    }


def stored_dtype(model_type: str, name: str, storage: torch.dtype) -> torch.dtype:
    """Beside 16-bit weights, ERNIE keeps routers in float32, LFM2 and Nemotron corrections, all
    of them decays."""
    ernie = model_type in ("ernie4_5_moe", "ernie4_5_vl_moe")
    in_float32 = (ernie and is_router(name)) or name.endswith(("A_log", "expert_bias"))
    corrects = model_type == "nemotron_h" and is_correction(name)
    return torch.float32 if in_float32 or corrects else storage


def is_router(name: str) -> bool:
    return name.endswith(("gate.weight", "gate.weight_1")) or is_correction(name)


def is_embedding(name: str) -> bool:
    return "embed_tokens." in name or name.endswith("model.embeddings.weight")


def is_correction(name: str) -> bool:
    return name.endswith(("e_score_correction_bias", "expert_bias"))


def stored_buffers(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """What files have beside parameters."""
    return [
        (name, buffer)
        for name, buffer in model.named_buffers()
        if is_correction(name) or name.endswith("layer_scalar")
    ]


def _correction(
    generator: np.random.Generator, shape: tuple[int, ...], experts: Experts | None
) -> np.ndarray:
    mean, std = (experts and experts.correction) or (0.0, 0.0)
    return (mean + std * generator.standard_normal(shape)).astype(np.float32)


def _fitted(config: Any, name: str, values: np.ndarray) -> np.ndarray:
    """Some families add 1 to the weights of their norms. Where embeddings are multiplied, they are
    drawn smaller: a tied head would echo its input."""
    gemma = config.model_type.startswith("gemma")
    if "norm" in name and config.model_type in WITH_NORMS_PLUS_ONE and ".linear_attn." not in name:
        return values - 1
    if config.model_type == "gemma4_text" and name.endswith(("q_norm.weight", "k_norm.weight")):
        return (values * UNSCALED_GAIN).astype(np.float32)
    if is_embedding(name):
        multiplier = config.hidden_size**0.5 if gemma else 1.0
        multiplier = getattr(config, "embedding_multiplier", multiplier)
        return (values / multiplier**0.5).astype(np.float32)
    return values


def _draw(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if "norm" in name or name.endswith(".ln.weight"):
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    if "router." in name and name.endswith("scale"):  # of inputs, and of each expert
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    if name.endswith("layer_scalar"):
        return generator.uniform(*SCALAR_RANGE, shape).astype(np.float32)
    if name.endswith(("A_log", "dt_bias")):
        bounds = DECAY_RANGE if name.endswith("A_log") else STEP_RANGE
        return generator.uniform(*bounds, shape).astype(np.float32)
    if name.endswith("bias"):
        std = BIAS_STD
    elif "embed_tokens_per_layer" in name:
        std = TABLE_STD
    elif "router.proj" in name:  # of rows that are divided by the root of their size
        std = LINEAR_GAIN
    elif is_embedding(name):
        std = EMBEDDING_STD
    elif "lm_head" in name:
        std = HEAD_GAIN / shape[1] ** 0.5
    elif any(part in name for part in ("in_proj_a", "in_proj_b")):
        std = STEP_GAIN / shape[1] ** 0.5
    elif any(part in name for part in ("q_proj", "k_proj", "qkv_proj")):
        std = QUERY_KEY_GAIN / shape[1] ** 0.5
    else:
        std = LINEAR_GAIN / shape[-1] ** 0.5
    return (generator.standard_normal(shape) * std).astype(np.float32)

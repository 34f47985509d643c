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
# Whose block for guesses is the layer behind the last.
WITH_LAYER_BEHIND = ("glm4_moe", "glm4_moe_lite", "deepseek_v3")
WITH_NORMS_PLUS_ONE = (
    "gemma2",
    "gemma3",
    "gemma3_text",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_next",
)
APART = (".linear_attn.", ".visual.", ".vision_tower.")  # whose norms have none added


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


def mtp_block(
    config: dict[str, Any], seed: int, storage: torch.dtype, experts: Experts | None = None
) -> dict[str, torch.Tensor]:
    """The block that guesses the token after the next one, as the family's files name it."""
    generator = np.random.default_rng([seed, 2])
    out = {}
    for name, shape in mtp_shapes(config).items():
        if is_correction(name):
            values = _correction(generator, shape, experts)
        else:
            values = _draw(generator, name, shape)
        if _is_plus_one(config["model_type"], name):
            values = values - 1
        dtype = stored_dtype(config["model_type"], name, storage)
        out[name] = torch.from_numpy(values).to(dtype)
    return out


def mtp_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    kind, hidden = config["model_type"], config["hidden_size"]
    if kind == "ernie4_5_moe":  # a dense layer
        stem = "model.mtp_block.0."
        around = ("model.mtp_emb_norm.0", "model.mtp_hidden_norm.0", "model.mtp_linear_proj.0")
        final = ()
        fed = _mlp_shapes("mlp.", hidden, config["intermediate_size"])
    elif kind in WITH_LAYER_BEHIND:
        stem = f"model.layers.{config['num_hidden_layers']}."
        around = (f"{stem}enorm", f"{stem}hnorm", f"{stem}eh_proj")
        final = (f"{stem}shared_head.norm",)
        shared = config["n_shared_experts"] * config["moe_intermediate_size"]
        fed = _expert_shapes(config, config["n_routed_experts"])
        fed |= {"mlp.gate.e_score_correction_bias": (config["n_routed_experts"],)}
        fed |= _mlp_shapes("mlp.shared_experts.", hidden, shared)
    else:
        stem = "mtp.layers.0."
        around = ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc")
        final = ("mtp.norm",)
        fed = _qwen_shapes(config)
    layer = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        **(_latent_shapes(config) if "kv_lora_rank" in config else _attention_shapes(config)),
        **fed,
    }
    embedding_norm, hidden_norm, join = (f"{name}.weight" for name in around)
    return {
        **{stem + name: shape for name, shape in layer.items()},
        embedding_norm: (hidden,),
        hidden_norm: (hidden,),
        join: (hidden, 2 * hidden),
        **{f"{name}.weight": (hidden,) for name in final},
    }


def _attention_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, kind = config["hidden_size"], config["model_type"]
    rows = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = rows * config["num_attention_heads"], rows * config["num_key_value_heads"]
    gates = 2 if kind in WITH_NORMS_PLUS_ONE else 1  # each head's queries, then its gates
    out = {
        "self_attn.q_proj.weight": (gates * q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
    }
    if config.get("attention_bias"):
        out |= {
            f"self_attn.{part}_proj.bias": (n,) for part, n in zip("qkv", (q, kv, kv), strict=True)
        }
    if gates == 2 or config.get("use_qk_norm"):
        out |= {f"self_attn.{part}_norm.weight": (rows,) for part in "qk"}
    return out


def _latent_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """With queries that come from a row of their own."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    still, turning = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    value, rank, queries = config["v_head_dim"], config["kv_lora_rank"], config["q_lora_rank"]
    shapes = {
        "q_a_proj": (queries, hidden),
        "q_a_layernorm": (queries,),
        "q_b_proj": (heads * (still + turning), queries),
        "kv_a_proj_with_mqa": (rank + turning, hidden),
        "kv_a_layernorm": (rank,),
        "kv_b_proj": (heads * (still + value), rank),
        "o_proj": (hidden, heads * value),
    }
    return {f"self_attn.{name}.weight": shape for name, shape in shapes.items()}


def _qwen_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden = config["hidden_size"]
    if "num_experts" not in config:
        return _mlp_shapes("mlp.", hidden, config["intermediate_size"])
    shared = _mlp_shapes("mlp.shared_expert.", hidden, config["shared_expert_intermediate_size"])
    gate = {"mlp.shared_expert_gate.weight": (1, hidden)}
    return _expert_shapes(config, config["num_experts"]) | shared | gate


def _expert_shapes(config: dict[str, Any], experts: int) -> dict[str, tuple[int, ...]]:
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    out = {"mlp.gate.weight": (experts, hidden)}
    for expert in range(experts):
        out |= _mlp_shapes(f"mlp.experts.{expert}.", hidden, width)
    return out


def _mlp_shapes(stem: str, hidden: int, width: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{stem}gate_proj.weight": (width, hidden),
        f"{stem}up_proj.weight": (width, hidden),
        f"{stem}down_proj.weight": (hidden, width),
    }


def stored_dtype(model_type: str, name: str, storage: torch.dtype) -> torch.dtype:
    """Beside 16-bit weights, ERNIE keeps routers in float32, all their correction, Qwen decays."""
    ernie = model_type in ("ernie4_5_moe", "ernie4_5_vl_moe")
    in_float32 = (ernie and is_router(name)) or is_correction(name) or name.endswith("A_log")
    return torch.float32 if in_float32 else storage


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
    if _is_plus_one(config.model_type, name):
        return values - 1
    if config.model_type == "gemma4_text" and name.endswith(("q_norm.weight", "k_norm.weight")):
        return (values * UNSCALED_GAIN).astype(np.float32)
    if is_embedding(name):
        multiplier = config.get_text_config().hidden_size ** 0.5 if gemma else 1.0
        multiplier = getattr(config, "embedding_multiplier", multiplier)
        return (values / multiplier**0.5).astype(np.float32)
    return values


def _is_plus_one(model_type: str, name: str) -> bool:
    apart = any(part in name for part in APART)
    return "norm" in name and model_type in WITH_NORMS_PLUS_ONE and not apart


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
    elif any(part in name for part in ("q_proj", "q_b_proj", "k_proj", "qkv_proj")):
        std = QUERY_KEY_GAIN / shape[1] ** 0.5
    else:
        std = LINEAR_GAIN / shape[-1] ** 0.5
    return (generator.standard_normal(shape) * std).astype(np.float32)

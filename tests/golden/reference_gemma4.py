"""The rules of README.md that Gemma 4 alone has, in float64; reference.py uses them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import reference_moe

Arrays = dict[str, np.ndarray]
Norm = Callable[[np.ndarray, Any], np.ndarray]  # of rows, and its weight

UNREAD = re.compile(r"model\.layers\.(\d+)\.self_attn\.(k_proj|v_proj|k_norm)\.weight")
OTHER_MODELS = ("vision_tower.", "embed_vision.", "audio_tower.", "embed_audio.")


@dataclasses.dataclass(slots=True)
class LayerHeads:
    kv_heads: int
    head_dim: int
    reads: int | None = None  # the layer whose keys and values it reads instead of its own


@dataclasses.dataclass(slots=True)
class Gemma4Rules:
    """Tests change single fields to see the answers change."""

    heads: list[LayerHeads]
    inputs: int  # numbers that each layer gets of each token; 0: none
    table_scale: float
    projection_scale: float
    router_scale: float
    input_scale: float = 0.5**0.5
    inputs_of: int = 0  # layers further (wrong)
    normed_values: bool = True
    values_as_keys: bool = False  # where keys are values: behind their norm and rope (wrong)
    scalars: bool = True
    scales_experts: bool = True
    experts_read_normed: bool = False  # the rows that the MLP reads (wrong)
    router_reads_normed: bool = False  # the same (wrong)


def rules_of(config: dict[str, Any]) -> Gemma4Rules | None:
    if config["model_type"] != "gemma4_text":
        return None
    hidden, inputs = config["hidden_size"], config["hidden_size_per_layer_input"]
    return Gemma4Rules(
        heads=_heads(config),
        inputs=inputs,
        table_scale=inputs**0.5,
        projection_scale=hidden**-0.5,
        router_scale=hidden**-0.5,
    )


def _heads(config: dict[str, Any]) -> list[LayerHeads]:
    types = config["layer_types"]
    own = len(types) - config["num_kv_shared_layers"]
    out = []
    for layer, kind in enumerate(types):
        heads = LayerHeads(config["num_key_value_heads"], config["head_dim"])
        if "per_layer_config" in config:
            keys = config["per_layer_config"].get(str(layer), {})
            heads.kv_heads = keys.get("num_key_value_heads", heads.kv_heads)
            heads.head_dim = keys.get("head_dim", heads.head_dim)
        elif kind == "full_attention":
            heads.head_dim = config["global_head_dim"]
            kv_heads = config["num_global_key_value_heads"]
            if config["attention_k_eq_v"] and kv_heads:
                heads.kv_heads = kv_heads
        if layer >= own:
            heads.reads = max(other for other in range(own) if types[other] == kind)
        out.append(heads)
    return out


def inputs_of_layers(
    rules: Gemma4Rules, weights: Arrays, ids: list[int], x: np.ndarray, norm: Norm
) -> np.ndarray:
    """[layers, tokens, inputs] of embeddings x."""

    def by_layer(rows: np.ndarray) -> np.ndarray:
        return rows.reshape(len(ids), -1, rules.inputs).transpose(1, 0, 2)

    table = by_layer(weights["model.embed_tokens_per_layer.weight"][ids]) * rules.table_scale
    projected = x @ weights["model.per_layer_model_projection.weight"].T
    projected = by_layer(projected * rules.projection_scale)
    projected = norm(projected, weights["model.per_layer_projection_norm.weight"])
    return np.roll((projected + table) * rules.input_scale, -rules.inputs_of, axis=0)


def finish_layer(
    rules: Gemma4Rules, parts: Arrays, x: np.ndarray, inputs: np.ndarray | None, norm: Norm
) -> np.ndarray:
    if inputs is not None:
        gate = reference_moe.ACTIVATIONS["gelu_tanh"](x @ parts["per_layer_input_gate.weight"].T)
        added = (gate * inputs) @ parts["per_layer_projection.weight"].T
        x = x + norm(added, parts["post_per_layer_input_norm.weight"])
    return x * parts["layer_scalar"] if rules.scalars else x


def feed_forward(
    rules: Gemma4Rules,
    experts: reference_moe.ExpertRules,
    parts: Arrays,
    x: np.ndarray,
    norm: Norm,
) -> np.ndarray:
    """The MLP and experts, side by side, of the residual x."""

    def normed(name: str, rows: np.ndarray) -> np.ndarray:
        return norm(rows, parts[f"{name}.weight"])

    y = normed("pre_feedforward_layernorm", x)
    dense = reference_moe.mlp(parts, "mlp", y, experts.activation)
    routed = norm(y if rules.router_reads_normed else x, 1.0)
    routed = routed * parts["router.scale"] * rules.router_scale
    weights = reference_moe.route(experts, parts, routed)
    if rules.scales_experts:
        weights = weights * parts["router.per_expert_scale"]
    read = y if rules.experts_read_normed else normed("pre_feedforward_layernorm_2", x)
    mixed = reference_moe.mix_experts(experts, parts, read, weights)
    return normed("post_feedforward_layernorm_1", dense) + normed(
        "post_feedforward_layernorm_2", mixed
    )


def plain_names(rules: Gemma4Rules | None, weights: Arrays) -> Arrays:
    """Experts as Qwen's files name them; without what no layer reads."""
    if rules is None:
        return weights
    plain: Arrays = {}
    for name, array in weights.items():
        if name.removeprefix("model.").startswith(OTHER_MODELS):
            continue
        match = UNREAD.fullmatch(name)
        if match and rules.heads[int(match[1])].reads is not None:
            continue
        name = name.replace(".router.proj.", ".mlp.gate.").replace(".experts.", ".mlp.experts.")
        plain[name] = array
    return plain

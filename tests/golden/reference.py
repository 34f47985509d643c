"""The rules of README.md as a plain numpy decoder in float64.

A second opinion on the golden files that needs no torch, and a place to print intermediate
values when an engine disagrees. Weights are as `load.read_checkpoint` returns them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import reference_moe

Arrays = dict[str, np.ndarray]
IN_OUT = ("proj.weight", "proj.0.weight", ".mlp.gate.weight", "lm_head.weight")  # in Paddle files


@dataclasses.dataclass(slots=True)
class Rules:
    """What a config.json means. Tests change single fields to see the answers change."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    windows: list[int | None]  # per layer; None: all earlier tokens are seen
    theta: float
    max_positions: int
    rope: dict[str, Any]
    interleaved: bool
    qk_norm: bool
    experts: reference_moe.ExpertRules | None


def rules_of(config: dict[str, Any]) -> Rules:
    family = config["model_type"]
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    ernie = family.startswith("ernie4_5")
    default_theta = 500000.0 if ernie else 10000.0
    return Rules(
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        eps=config["rms_norm_eps"],
        windows=_windows(config),
        theta=rope.get("rope_theta", config.get("rope_theta", default_theta)),
        max_positions=config["max_position_embeddings"],
        rope=rope,
        interleaved=ernie,
        qk_norm=family.startswith("qwen3"),
        experts=reference_moe.rules_of(config),
    )


def _windows(config: dict[str, Any]) -> list[int | None]:
    layers = range(config["num_hidden_layers"])
    family = config["model_type"]
    if family in ("mistral", "mixtral") or (family == "qwen3_moe" and config["use_sliding_window"]):
        return [config["sliding_window"] for _ in layers]
    if not (family in ("qwen2", "qwen3") and config["use_sliding_window"]):
        return [None for _ in layers]
    first = config["max_window_layers"]
    kinds = config.get("layer_types") or [
        "sliding_attention" if layer >= first else "full_attention" for layer in layers
    ]
    return [config["sliding_window"] if kind == "sliding_attention" else None for kind in kinds]


def inverse_frequencies(rules: Rules, length: int = 0) -> tuple[np.ndarray, float]:
    """float32 [head_dim / 2] and the attention factor; `length` matters to dynamic rope only."""
    d, theta, rope = rules.head_dim, rules.theta, rules.rope
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "dynamic" and length > rules.max_positions:
        growth = rope["factor"] * length / rules.max_positions - (rope["factor"] - 1)
        theta *= growth ** (d / (d - 2))
    plain = 1.0 / theta ** (np.arange(0, d, 2) / d)
    factor, attention_factor = rope.get("factor"), 1.0
    original = rope.get("original_max_position_embeddings", rules.max_positions)
    if kind == "linear":
        plain = plain / factor
    elif kind == "llama3":
        plain = _llama3(plain, rope, original)
    elif kind == "yarn":
        factor = factor or rules.max_positions / original
        ramp = _yarn_ramp(rope, d, theta, original)
        plain = plain / factor * ramp + plain * (1 - ramp)
        attention_factor = _yarn_attention_factor(rope, factor)
    return plain.astype(np.float32), attention_factor


def _llama3(plain: np.ndarray, rope: dict[str, Any], original: int) -> np.ndarray:
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = original * plain / (2 * math.pi)  # over the original length
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - smooth) * plain / rope["factor"] + smooth * plain


def _yarn_ramp(rope: dict[str, Any], d: int, theta: float, original: int) -> np.ndarray:
    def dimension(turns: float) -> float:
        return d * math.log(original / (2 * math.pi * turns)) / (2 * math.log(theta))

    low = dimension(rope.get("beta_fast") or 32)
    high = dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    if low == high:
        high += 0.001
    return np.clip((np.arange(d // 2) - low) / (high - low), 0, 1)


def _yarn_attention_factor(rope: dict[str, Any], factor: float) -> float:
    def scale(multiplier: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0

    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return scale(rope["mscale"]) / scale(rope["mscale_all_dim"])
    return scale(1.0)


def logits(rules: Rules, weights: Arrays, ids: list[int], prompt_length: int) -> np.ndarray:
    """float64 [len(ids), vocabulary] of one request whose first `prompt_length` ids are given."""
    weights = pytorch_layout(rules, weights)
    return hidden_rows(rules, weights, ids, prompt_length) @ head_of(weights).T


def head_of(weights: Arrays) -> np.ndarray:
    return weights.get("lm_head.weight", weights["model.embed_tokens.weight"])


def guess_logits(
    rules: Rules, weights: Arrays, ids: list[int], embedding_first: bool = True
) -> np.ndarray:
    """float64 [len(ids) - 1, vocabulary] of the MTP block; row p is of position p + 2."""
    weights = pytorch_layout(rules, weights)
    hidden = hidden_rows(rules, weights, ids, len(ids))[:-1]
    embedded = weights["model.embed_tokens.weight"][ids[1:]]
    joined = [
        rms_norm(embedded, weights["model.mtp_emb_norm.0.weight"], rules.eps),
        rms_norm(hidden, weights["model.mtp_hidden_norm.0.weight"], rules.eps),
    ]
    if not embedding_first:
        joined.reverse()
    x = np.concatenate(joined, axis=-1) @ weights["model.mtp_linear_proj.0.weight"].T
    cos, sin = _rope_tables(rules, len(x), len(ids))
    stem = "model.mtp_block.0."
    parts = {k.removeprefix(stem): v for k, v in weights.items() if k.startswith(stem)}
    y = rms_norm(x, parts["input_layernorm.weight"], rules.eps)
    x = x + _attention(rules, parts, y, cos, sin, None)
    y = rms_norm(x, parts["post_attention_layernorm.weight"], rules.eps)
    x = x + reference_moe.mlp(parts, "mlp", y)
    return rms_norm(x, weights["model.norm.weight"], rules.eps) @ head_of(weights).T


def hidden_rows(rules: Rules, weights: Arrays, ids: list[int], prompt_length: int) -> np.ndarray:
    """float64 [len(ids), hidden size] behind the final norm; weights in the PyTorch layout."""
    cos, sin = _rope_tables(rules, len(ids), prompt_length)
    x = weights["model.embed_tokens.weight"][ids]
    for layer, window in enumerate(rules.windows):
        stem = f"model.layers.{layer}."
        parts = {k.removeprefix(stem): v for k, v in weights.items() if k.startswith(stem)}
        y = rms_norm(x, parts["input_layernorm.weight"], rules.eps)
        x = x + _attention(rules, parts, y, cos, sin, window)
        y = rms_norm(x, parts["post_attention_layernorm.weight"], rules.eps)
        if rules.experts and rules.experts.sparse[layer]:
            x = x + reference_moe.feed_forward(rules.experts, parts, y)
        else:
            x = x + reference_moe.mlp(parts, "mlp", y)
    return rms_norm(x, weights["model.norm.weight"], rules.eps)


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(rules: Rules, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x: [tokens, heads, head_dim]; cos and sin: [tokens, 1, head_dim / 2]."""
    half = rules.head_dim // 2
    first = (Ellipsis, slice(0, None, 2) if rules.interleaved else slice(half))
    second = (Ellipsis, slice(1, None, 2) if rules.interleaved else slice(half, None))
    out = np.empty_like(x)
    out[first] = x[first] * cos - x[second] * sin
    out[second] = x[second] * cos + x[first] * sin
    return out


def _rope_tables(rules: Rules, tokens: int, prompt_length: int) -> tuple[np.ndarray, np.ndarray]:
    rows = []
    for position in range(tokens):
        frequencies, factor = inverse_frequencies(rules, max(position + 1, prompt_length))
        rows.append(np.float32(position) * frequencies)  # float32, as models were trained with
    angles = np.stack(rows).astype(np.float64)[:, None, :]
    return np.cos(angles) * factor, np.sin(angles) * factor


def _attention(
    rules: Rules, parts: Arrays, y: np.ndarray, cos: np.ndarray, sin: np.ndarray, window: int | None
) -> np.ndarray:
    tokens, d = len(y), rules.head_dim
    q = _linear(parts, "self_attn.q_proj", y).reshape(tokens, rules.heads, d)
    k = _linear(parts, "self_attn.k_proj", y).reshape(tokens, rules.kv_heads, d)
    v = _linear(parts, "self_attn.v_proj", y).reshape(tokens, rules.kv_heads, d)
    if rules.qk_norm:
        q = rms_norm(q, parts["self_attn.q_norm.weight"], rules.eps)
        k = rms_norm(k, parts["self_attn.k_norm.weight"], rules.eps)
    q, k = rotate(rules, q, cos, sin), rotate(rules, k, cos, sin)
    group = rules.heads // rules.kv_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(d)
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    seen = (distance >= 0) & (distance < (window or tokens))
    scores = np.where(seen, scores, -np.inf)
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    out = np.einsum("hqk,khd->qhd", chances, v).reshape(tokens, rules.heads * d)
    return _linear(parts, "self_attn.o_proj", out)


def _linear(parts: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return x @ parts[f"{name}.weight"].T + parts.get(f"{name}.bias", 0.0)


def pytorch_layout(rules: Rules, weights: Arrays) -> Arrays:
    """float64 weights under PyTorch names and [out, in]; undoes the ERNIE Paddle layout."""
    if "ernie.embed_tokens.weight" not in weights:
        plain = {name: array.astype(np.float64) for name, array in weights.items()}
        return reference_moe.plain_names(plain)
    q_end = rules.heads * rules.head_dim
    k_end = q_end + rules.kv_heads * rules.head_dim
    plain: Arrays = {}
    for name, array in weights.items():
        is_matrix = name.endswith(IN_OUT)
        array = (array.T if is_matrix else array).astype(np.float64)
        name = name.replace("ernie.", "model.", 1)
        if "qkv_proj" in name:
            plain |= _split(name, array, [q_end, k_end], "qkv_proj", ("q_proj", "k_proj", "v_proj"))
        elif "up_gate_proj" in name:
            plain |= _split(name, array, 2, "up_gate_proj", ("gate_proj", "up_proj"))
        else:
            plain[name] = array
    return plain


def _split(
    name: str, array: np.ndarray, cuts: int | list[int], fused: str, parts: tuple[str, ...]
) -> Arrays:
    pieces = np.split(array, cuts)
    return {name.replace(fused, part): p for part, p in zip(parts, pieces, strict=True)}

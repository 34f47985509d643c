"""The rules of README.md for rotary embeddings, in float64; reference.py uses them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(slots=True)
class RopeRules:
    """One table. `params` is the object of config.json that says its kind and numbers."""

    params: dict[str, Any]
    theta: float
    dim: int  # of a head, from its start, that are rotated
    max_positions: int
    original: int  # length before a context was extended

    @property
    def kind(self) -> str:
        return str(self.params.get("rope_type", self.params.get("type", "default")))


def inverse_frequencies(rope: RopeRules, length: int = 0) -> tuple[np.ndarray, float]:
    """float32 [dim / 2] and the attention factor; `length` matters to dynamic rope and longrope."""
    d, theta, params = rope.dim, rope.theta, rope.params
    factor, attention_factor = params.get("factor"), 1.0
    kind = rope.kind
    if kind == "alpha":
        theta *= params["alpha"] ** (d / (d - 2))
    if kind == "dynamic" and length > rope.max_positions:
        growth = factor * length / rope.max_positions - (factor - 1)
        theta *= growth ** (d / (d - 2))
    plain = 1.0 / theta ** (np.arange(0, d, 2) / d)
    if kind == "proportional":
        plain = plain / (factor or 1.0)
        plain[int(params.get("partial_rotary_factor", 1.0) * d // 2) :] = 0
    elif kind == "linear":
        plain = plain / factor
    elif kind == "llama3":
        plain = _llama3(plain, params, rope.original)
    elif kind == "yarn":
        factor = factor or rope.max_positions / rope.original
        ramp = _yarn_ramp(params, d, theta, rope.original)
        plain = plain / factor * ramp + plain * (1 - ramp)
        attention_factor = _yarn_attention_factor(params, factor)
    elif kind == "longrope":
        is_long = length > rope.original
        plain = plain / np.array(params["long_factor" if is_long else "short_factor"])
        attention_factor = _longrope_attention_factor(rope)
    return plain.astype(np.float32), attention_factor


def rope_tables(rope: RopeRules, tokens: int, prompt_length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin [tokens, 1, dim / 2], with the attention factor in them."""
    if rope.kind in ("dynamic", "longrope"):
        tables = [inverse_frequencies(rope, max(p + 1, prompt_length)) for p in range(tokens)]
        frequencies = np.stack([table for table, _ in tables])
        factor = tables[0][1]
    else:
        frequencies, factor = inverse_frequencies(rope)
    positions = np.arange(tokens, dtype=np.float32)[:, None]
    angles = (positions * frequencies).astype(np.float64)  # float32, as models were trained with
    return np.cos(angles)[:, None] * factor, np.sin(angles)[:, None] * factor


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """x: [tokens, heads, head_dim], of which the first numbers are rotated, in pairs or halves."""
    half = cos.shape[-1]
    first = (Ellipsis, slice(0, 2 * half, 2) if interleaved else slice(half))
    second = (Ellipsis, slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half))
    out = x.copy()
    out[first] = x[first] * cos - x[second] * sin
    out[second] = x[second] * cos + x[first] * sin
    return out


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


def yarn_scale(factor: float, multiplier: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0


def _yarn_attention_factor(rope: dict[str, Any], factor: float) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return yarn_scale(factor, rope["mscale"]) / yarn_scale(factor, rope["mscale_all_dim"])
    return yarn_scale(factor, 1.0)


def _longrope_attention_factor(rope: RopeRules) -> float:
    if rope.params.get("attention_factor") is not None:
        return float(rope.params["attention_factor"])
    factor = rope.params.get("factor") or rope.max_positions / rope.original
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(rope.original))

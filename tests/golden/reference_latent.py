"""The rules of README.md for latent attention, in float64; reference.py uses them. Keys and values
of all heads are made from latent vectors, as transformers does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from reference_moe import linear

Arrays = dict[str, np.ndarray]
Norm = Callable[[np.ndarray, Any], np.ndarray]  # of rows, and its weight
Turn = Callable[[np.ndarray], np.ndarray]  # of [tokens, heads, turned numbers]


@dataclasses.dataclass(slots=True)
class LatentRules:
    """Tests change single fields to see the answers change."""

    rank: int
    still: int  # numbers of a query or key that don't turn; those that do come behind them
    eps: float = 1e-6  # of the norms within attention, whatever the config says
    normed_queries: bool = True
    normed: bool = True
    norms_all: bool = False  # also what turns (wrong)
    turned: bool = True
    shared: bool = True  # all heads have the keys that turn, not the first alone
    values_first: bool = False  # of a head's rows (wrong)
    by_head: bool = True  # rows of a head are together, not all keys before all values


def rules_of(config: dict[str, Any]) -> LatentRules | None:
    if "kv_lora_rank" not in config:
        return None
    return LatentRules(config["kv_lora_rank"], config["qk_nope_head_dim"])


def queries(
    rules: LatentRules, parts: Arrays, y: np.ndarray, heads: int, turn: Turn, norm: Norm
) -> np.ndarray:
    """[tokens, heads, head_dim]"""
    stem = "q"
    if "self_attn.q_a_proj.weight" in parts:
        stem, y = "q_b", linear(parts, "self_attn.q_a_proj", y)
        if rules.normed_queries:
            y = norm(y, parts["self_attn.q_a_layernorm.weight"])
    q = linear(parts, f"self_attn.{stem}_proj", y).reshape(len(y), heads, -1)
    still, turning = np.split(q, [rules.still], axis=-1)
    return np.concatenate([still, turn(turning)], axis=-1)


def keys_values(
    rules: LatentRules, parts: Arrays, y: np.ndarray, heads: int, turn: Turn, norm: Norm
) -> tuple[np.ndarray, np.ndarray]:
    """[tokens, heads, head_dim] and [tokens, heads, numbers of a value]"""
    both = linear(parts, "self_attn.kv_a_proj_with_mqa", y)
    weight = parts["self_attn.kv_a_layernorm.weight"]
    if rules.norms_all:
        ones = np.ones(both.shape[-1] - rules.rank)
        both, weight = norm(both, np.concatenate([weight, ones])), None
    latent, turning = np.split(both, [rules.rank], axis=-1)
    if rules.normed and weight is not None:
        latent = norm(latent, weight)
    still, values = _expanded(rules, linear(parts, "self_attn.kv_b_proj", latent), heads)
    turning = turning[:, None]
    turning = np.repeat(turn(turning) if rules.turned else turning, heads, axis=1)
    if not rules.shared:
        turning[:, 1:] = 0
    return np.concatenate([still, turning], axis=-1), values


def _expanded(rules: LatentRules, rows: np.ndarray, heads: int) -> tuple[np.ndarray, np.ndarray]:
    if not rules.by_head:
        still, values = np.split(rows, [heads * rules.still], axis=-1)
        return still.reshape(len(rows), heads, -1), values.reshape(len(rows), heads, -1)
    rows = rows.reshape(len(rows), heads, -1)
    if rules.values_first:
        values, still = np.split(rows, [rows.shape[-1] - rules.still], axis=-1)
        return still, values
    still, values = np.split(rows, [rules.still], axis=-1)
    return still, values

"""The rules of README.md as a plain numpy decoder in float64.

A second opinion on the golden files that needs no torch, and a place to print intermediate
values when an engine disagrees. Weights are as `load.read_checkpoint` returns them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import reference_moe
import reference_states
from reference_rope import RopeRules, inverse_frequencies, rope_tables, rotate
from reference_rules import Rules, rules_of

__all__ = ["RopeRules", "Rules", "inverse_frequencies", "logits", "rules_of"]

Arrays = dict[str, np.ndarray]
Table = tuple[np.ndarray, np.ndarray]  # cos and sin
IN_OUT = ("proj.weight", "proj.0.weight", ".mlp.gate.weight", "lm_head.weight")  # in Paddle files
QKV = ("q_proj", "k_proj", "v_proj")
GATE_UP = ("gate_proj", "up_proj")


def logits(rules: Rules, weights: Arrays, ids: list[int], prompt_length: int) -> np.ndarray:
    """float64 [len(ids), vocabulary] of one request whose first `prompt_length` ids are given."""
    weights = pytorch_layout(rules, weights)
    rows = hidden_rows(rules, weights, ids, prompt_length) @ head_of(weights).T
    return _capped(rows * rules.logit_scale, rules.logit_cap)


def head_of(weights: Arrays) -> np.ndarray:
    return weights.get("lm_head.weight", weights["model.embed_tokens.weight"])


def guess_logits(
    rules: Rules, weights: Arrays, ids: list[int], embedding_first: bool = True
) -> np.ndarray:
    """float64 [len(ids) - 1, vocabulary] of the MTP block; row p is of position p + 2."""
    weights = pytorch_layout(rules, weights)
    names = _mtp_names(weights)
    hidden = hidden_rows(rules, weights, ids, len(ids))[:-1]
    embedded = weights["model.embed_tokens.weight"][ids[1:]]
    joined = [
        norm(rules, embedded, weights[f"{names.embedding_norm}.weight"]),
        norm(rules, hidden, weights[f"{names.hidden_norm}.weight"]),
    ]
    if not embedding_first:
        joined.reverse()
    x = np.concatenate(joined, axis=-1) @ weights[f"{names.join}.weight"].T
    table = _tables(rules, len(x), len(ids))[-1]
    parts = _parts(weights, names.layer)
    x = _layer(rules, parts, x, table, None, sparse="mlp.gate.weight" in parts)
    return norm(rules, x, weights[f"{names.final_norm}.weight"]) @ head_of(weights).T


class _MtpNames(NamedTuple):
    """Before ".weight", but for the layer, whose names begin so."""

    embedding_norm: str
    hidden_norm: str
    join: str
    layer: str
    final_norm: str


def _mtp_names(weights: Arrays) -> _MtpNames:
    if "mtp.fc.weight" in weights:
        stems = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "layers.0.", "norm")
        return _MtpNames(*(f"mtp.{stem}" for stem in stems))
    behind = [name for name in weights if name.endswith(".eh_proj.weight")]
    if behind:
        layer = behind[0].removesuffix("eh_proj.weight")
        stems = ("enorm", "hnorm", "eh_proj", "", "shared_head.norm")
        return _MtpNames(*(layer + stem for stem in stems))
    stems = ("mtp_emb_norm.0", "mtp_hidden_norm.0", "mtp_linear_proj.0", "mtp_block.0.", "norm")
    return _MtpNames(*(f"model.{stem}" for stem in stems))


def hidden_rows(rules: Rules, weights: Arrays, ids: list[int], prompt_length: int) -> np.ndarray:
    """float64 [len(ids), hidden size] behind the final norm; weights in the PyTorch layout."""
    tables = _tables(rules, len(ids), prompt_length)
    x = weights["model.embed_tokens.weight"][ids] * rules.embedding_scale
    for layer, (table, window) in enumerate(zip(tables, rules.windows, strict=True)):
        parts = _parts(weights, f"model.layers.{layer}.")
        sparse = bool(rules.experts and rules.experts.sparse[layer])
        stateful = bool(rules.states and rules.states.layers[layer])
        x = _layer(rules, parts, x, table, window, sparse, stateful)
    return norm(rules, x, weights["model.norm.weight"])


def norm(rules: Rules, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    if rules.norm_kind == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    if rules.norm_kind == "rms_plus_one":
        weight = 1.0 + weight
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + rules.eps) * weight


def _layer(
    rules: Rules,
    parts: Arrays,
    x: np.ndarray,
    table: Table | None,
    window: int | None,
    sparse: bool,
    stateful: bool = False,
) -> np.ndarray:
    def normed(name: str | None, rows: np.ndarray) -> np.ndarray:
        return rows if name is None else norm(rules, rows, parts[f"{name}.weight"])

    y = normed(rules.norms.before_attention, x)
    if stateful:
        mixed = reference_states.mix(rules.states, parts, y)
    else:
        mixed = _attention(rules, parts, y, table, window)
    x = x + normed(rules.norms.behind_attention, mixed) * rules.residual_scale
    if not rules.parallel:
        y = normed(rules.norms.before_mlp, x)
    if sparse:
        fed = reference_moe.feed_forward(rules.experts, parts, y)
    else:
        fed = reference_moe.mlp(parts, "mlp", y, rules.activation)
    return x + normed(rules.norms.behind_mlp, fed) * rules.residual_scale


def _attention(
    rules: Rules, parts: Arrays, y: np.ndarray, table: Table | None, window: int | None
) -> np.ndarray:
    tokens, d = len(y), rules.head_dim
    q, k = (_rotated(rules, parts, kind, y, table) for kind in "qk")
    v = _linear(parts, "self_attn.v_proj", y).reshape(tokens, rules.kv_heads, d)
    if rules.query_growth:
        beta, length = rules.query_growth
        steps = np.arange(tokens) // length
        q = q * (1 + beta * np.log(1 + steps))[:, None, None]
    group = rules.heads // rules.kv_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = _capped(np.einsum("qhd,khd->hqk", q, k) * rules.score_scale, rules.score_cap)
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    seen = (distance >= 0) & (distance < (window or tokens))
    scores = np.where(seen, scores, -np.inf)
    if "self_attn.sinks" in parts:  # a score of each head, with no value
        sinks = np.broadcast_to(parts["self_attn.sinks"][:, None, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, sinks], axis=-1)
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    chances = chances[..., :tokens]
    out = np.einsum("hqk,khd->qhd", chances, v).reshape(tokens, rules.heads * d)
    if rules.attention_gate:
        out = out / (1 + np.exp(-_linear(parts, "self_attn.gate_proj", y)))
    return _linear(parts, "self_attn.o_proj", out)


def _rotated(
    rules: Rules, parts: Arrays, kind: str, y: np.ndarray, table: Table | None
) -> np.ndarray:
    """Queries or keys [tokens, heads, head_dim], with norm and rope in the order of the rules."""
    rows = _linear(parts, f"self_attn.{kind}_proj", y)
    weight = parts.get(f"self_attn.{kind}_norm.weight")
    if rules.qk_norm == "row":
        rows = norm(rules, rows, weight)
    heads = rows.reshape(len(y), -1, rules.head_dim)
    if rules.qk_norm == "head":
        heads = norm(rules, heads, weight.reshape(-1, rules.head_dim))
    if table is not None:
        heads = rotate(heads, *table, rules.interleaved)
    return norm(rules, heads, weight) if rules.qk_norm == "rotated" else heads


def _tables(rules: Rules, tokens: int, prompt_length: int) -> list[Table | None]:
    """One for each layer; layers with the same rules share it."""
    ready: dict[int, Table] = {}
    for rope in rules.ropes:
        if rope is not None and id(rope) not in ready:
            ready[id(rope)] = rope_tables(rope, tokens, prompt_length)
    return [None if rope is None else ready[id(rope)] for rope in rules.ropes]


def _capped(x: np.ndarray, cap: float | None) -> np.ndarray:
    return x if cap is None else cap * np.tanh(x / cap)


def _linear(parts: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return x @ parts[f"{name}.weight"].T + parts.get(f"{name}.bias", 0.0)


def _parts(weights: Arrays, stem: str) -> Arrays:
    return {k.removeprefix(stem): v for k, v in weights.items() if k.startswith(stem)}


def pytorch_layout(rules: Rules, weights: Arrays) -> Arrays:
    """float64 weights under Llama's and Qwen's names and [out, in], one tensor for each matrix."""
    plain: Arrays = {}
    paddle = "ernie.embed_tokens.weight" in weights
    for name, array in weights.items():
        if paddle and name.endswith(IN_OUT):
            array = array.T
        if name.startswith("model.visual."):
            continue
        name = name.replace("ernie.", "model.", 1) if paddle else name
        name = name.replace("model.language_model.", "model.", 1)
        name = name.replace("query_layernorm", "q_norm").replace("key_layernorm", "k_norm")
        plain |= _split(rules, name, array.astype(np.float64))
    if paddle:
        return plain
    return reference_moe.plain_names(reference_states.plain_names(plain))


def _split(rules: Rules, name: str, array: np.ndarray) -> Arrays:
    """A fused tensor's rows; any other as it is. The experts' are reference_moe's."""
    q_end = rules.heads * rules.head_dim
    k_end = q_end + rules.kv_heads * rules.head_dim
    if rules.states and name.endswith(("in_proj_qkvz.weight", "in_proj_ba.weight")):
        return reference_states.ungroup(rules.states, name, array)
    if "q_proj" in name and len(array) == 2 * q_end:
        halves = array.reshape(rules.heads, 2, rules.head_dim, -1)
        q, gate = (halves[:, i].reshape(-1, array.shape[-1]) for i in (0, 1))
        return {name: q, name.replace("q_proj", "gate_proj"): gate}
    if "qkv_proj" in name:
        fused, parts, pieces = "qkv_proj", QKV, np.split(array, [q_end, k_end])
    elif "up_gate_proj" in name:
        fused, parts, pieces = "up_gate_proj", GATE_UP, np.split(array, 2)
    elif "mlp.gate_up_proj" in name:
        fused, parts, pieces = "gate_up_proj", GATE_UP, np.split(array, 2)
    else:
        return {name: array}
    return {name.replace(fused, part): piece for part, piece in zip(parts, pieces, strict=True)}

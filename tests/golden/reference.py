"""The rules of README.md as a plain numpy decoder in float64.

A second opinion on the golden files that needs no torch, and a place to print intermediate
values when an engine disagrees. Weights are as `load.read_checkpoint` returns them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import reference_blocks
import reference_gemma4
import reference_latent
import reference_moe
import reference_states
from reference_moe import linear
from reference_rope import RopeRules, inverse_frequencies, rope_tables, rotate
from reference_rules import Rules, rules_of

__all__ = ["RopeRules", "Rules", "inverse_frequencies", "logits", "rules_of"]

Arrays = dict[str, np.ndarray]
Table = tuple[np.ndarray, np.ndarray]  # cos and sin
KeysValues = tuple[np.ndarray, np.ndarray]
Block = Callable[[np.ndarray], np.ndarray]  # what it adds for the rows that it reads
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
    mix = partial(_attention, rules, parts, table, None, {}, 0)
    if "mlp.gate.weight" in parts:
        feed: Block = partial(reference_moe.feed_forward, rules.experts, parts)
    else:
        feed = partial(_mlp, rules, parts)
    x = _layer(rules, parts, x, mix, feed)
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
    normed = partial(norm, rules)
    inputs = None
    if rules.gemma4 and rules.gemma4.inputs:
        inputs = reference_gemma4.inputs_of_layers(rules.gemma4, weights, ids, x, normed)
    kept: dict[int, KeysValues] = {}
    for layer, (table, window) in enumerate(zip(tables, rules.windows, strict=True)):
        parts = _parts(weights, f"model.layers.{layer}.")
        own = _rules_of_layer(rules, layer)
        attend = partial(_attention, own, parts, table, window, kept, _read_by(rules, layer))
        stateful = bool(rules.states and rules.states.layers[layer])
        mix: Block = partial(_mix, rules, parts, attend, stateful)
        feed = _feed(rules, parts, layer)
        if rules.blocks is not None:
            y = norm(rules, x, parts["input_layernorm.weight"])
            x = x + (mix if rules.blocks[layer] in "M*" else feed)(y)
            continue
        x = _layer(own, parts, x, mix, feed)
        if rules.gemma4:
            given = None if inputs is None else inputs[layer]
            x = reference_gemma4.finish_layer(rules.gemma4, parts, x, given, normed)
    return norm(rules, x, weights["model.norm.weight"])


def norm(rules: Rules, x: np.ndarray, weight: np.ndarray | float) -> np.ndarray:
    if rules.norm_kind == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    if rules.norm_kind == "rms_plus_one":
        weight = 1.0 + weight
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + rules.eps) * weight


def _rules_of_layer(rules: Rules, layer: int) -> Rules:
    if rules.gemma4 is None:
        return rules
    heads = rules.gemma4.heads[layer]
    return dataclasses.replace(rules, kv_heads=heads.kv_heads, head_dim=heads.head_dim)


def _read_by(rules: Rules, layer: int) -> int:
    """The layer whose keys and values a layer reads."""
    reads = rules.gemma4.heads[layer].reads if rules.gemma4 else None
    return layer if reads is None else reads


def _feed(rules: Rules, parts: Arrays, layer: int | None) -> Block:
    """None: of a block that has an MLP in any case."""
    if layer is None or not (rules.experts and rules.experts.sparse[layer]):
        return partial(_mlp, rules, parts)
    if rules.gemma4:
        return partial(
            reference_gemma4.feed_forward,
            rules.gemma4,
            rules.experts,
            parts,
            norm=partial(norm, rules),
        )
    return partial(reference_moe.feed_forward, rules.experts, parts)


def _mlp(rules: Rules, parts: Arrays, y: np.ndarray) -> np.ndarray:
    factor = rules.gate_factor
    return (
        reference_moe.mlp(parts, "mlp", y, rules.activation, gate_factor=factor) * rules.fed_scale
    )


def _layer(rules: Rules, parts: Arrays, x: np.ndarray, mix: Block, feed: Block) -> np.ndarray:
    def normed(name: str | None, rows: np.ndarray) -> np.ndarray:
        return rows if name is None else norm(rules, rows, parts[f"{name}.weight"])

    y = normed(rules.norms.before_attention, x)
    x = x + normed(rules.norms.behind_attention, mix(y)) * rules.residual_scale
    if not rules.parallel:
        y = normed(rules.norms.before_mlp, x)
    return x + normed(rules.norms.behind_mlp, feed(y)) * rules.residual_scale


def _mix(rules: Rules, parts: Arrays, attend: Block, state: bool, y: np.ndarray) -> np.ndarray:
    if rules.pair:
        attended = attend(y * rules.pair.attention_in)
        read = reference_states.mix(rules.states, parts, y * rules.pair.state_in)
        return attended * rules.pair.attention_out + read * rules.pair.state_out
    return reference_states.mix(rules.states, parts, y) if state else attend(y)


def _attention(
    rules: Rules,
    parts: Arrays,
    table: Table | None,
    window: int | None,
    kept: dict[int, KeysValues],
    place: int,
    y: np.ndarray,
) -> np.ndarray:
    """Reads the keys and values of layer `place`, which are its own unless they are there."""
    tokens = len(y)
    q = _queries(rules, parts, table, y)
    if place not in kept:
        kept[place] = _keys_values(rules, parts, table, y)
    k, v = kept[place]
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
    out = np.einsum("hqk,khd->qhd", chances, v).reshape(tokens, -1)
    if rules.attention_gate:
        out = out / (1 + np.exp(-linear(parts, "self_attn.gate_proj", y)))
    return linear(parts, "self_attn.o_proj", out)


def _queries(rules: Rules, parts: Arrays, table: Table | None, y: np.ndarray) -> np.ndarray:
    if rules.latent:
        turn, inner = _within_latent(rules, table)
        return reference_latent.queries(rules.latent, parts, y, rules.heads, turn, inner)
    return _rotated(rules, parts, "q", y, table)


def _within_latent(rules: Rules, table: Table | None) -> tuple[Block, Callable]:
    """What turns a part of a head, and the norm of rows within latent attention."""
    turn = partial(rotate, cos=table[0], sin=table[1], interleaved=rules.interleaved)
    return turn, partial(norm, dataclasses.replace(rules, eps=rules.latent.eps))


def _keys_values(rules: Rules, parts: Arrays, table: Table | None, y: np.ndarray) -> KeysValues:
    if rules.latent:
        turn, inner = _within_latent(rules, table)
        return reference_latent.keys_values(rules.latent, parts, y, rules.heads, turn, inner)
    k = _rotated(rules, parts, "k", y, table)
    own_values = "self_attn.v_proj.weight" in parts
    if not own_values and rules.gemma4.values_as_keys:
        return k, k
    v = linear(parts, "self_attn.v_proj" if own_values else "self_attn.k_proj", y)
    v = v.reshape(len(y), rules.kv_heads, rules.head_dim)
    normed_values = rules.gemma4 and rules.gemma4.normed_values
    return k, norm(rules, v, 1.0) if normed_values else v


def _rotated(
    rules: Rules, parts: Arrays, kind: str, y: np.ndarray, table: Table | None
) -> np.ndarray:
    """Queries or keys [tokens, heads, head_dim], with norm and rope in the order of the rules."""
    rows = linear(parts, f"self_attn.{kind}_proj", y)
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
    if rules.blocks or rules.pair:
        return reference_blocks.plain_names(rules.blocks, plain)
    plain = reference_gemma4.plain_names(rules.gemma4, plain)
    return reference_moe.plain_names(reference_states.plain_names(plain))


def _split(rules: Rules, name: str, array: np.ndarray) -> Arrays:
    """A fused tensor's rows; any other as it is. The experts' are reference_moe's."""
    q_end = rules.heads * rules.head_dim
    k_end = q_end + rules.kv_heads * rules.head_dim
    if rules.states and name.endswith(("in_proj_qkvz.weight", "in_proj_ba.weight")):
        return reference_states.ungroup(rules.states, name, array)
    if rules.gemma4 is None and "q_proj" in name and len(array) == 2 * q_end:
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

"""The rules of README.md for layers that keep a state, in float64; reference.py uses them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import reference_blocks

Arrays = dict[str, np.ndarray]

LFM2_NAMES = {
    "model.embedding_norm": "model.norm",
    "operator_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "self_attn.q_layernorm": "self_attn.q_norm",
    "self_attn.k_layernorm": "self_attn.k_norm",
    "self_attn.out_proj": "self_attn.o_proj",
    "feed_forward.expert_bias": "mlp.moe_statics.e_score_correction_bias",
    "feed_forward": "mlp",
    ".w1.": ".gate_proj.",
    ".w3.": ".up_proj.",
    ".w2.": ".down_proj.",
}


@dataclasses.dataclass(slots=True)
class StateRules:
    """Tests change single fields to see the answers change."""

    layers: list[bool]  # those with a state
    kernel: int
    key_heads: int = 0
    value_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    eps: float = 1e-6  # of the norm of what heads read
    silu: bool = True  # behind the convolution
    reversed_kernel: bool = False  # wrong
    neighbours: bool = True  # value heads of a key head; else they lie key_heads apart (wrong)
    unit_length: bool = True  # queries and keys
    query_scale: float = 1.0
    decays: bool = True
    decay_first: bool = True  # before a key reads what is there
    sees_itself: bool = True  # a row reads what it has written
    norm_first: bool = True  # then the gate
    norm_offset: float = 0.0  # of that norm's weights
    gates: bool = True
    skips: bool = True  # Mamba-2: a row's own x is added, times D
    groups: int = 0  # of Mamba-2's heads
    normed: bool = True  # what is read, in groups
    factors: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)  # of z, x, B, C, dt


def rules_of(config: dict[str, Any]) -> StateRules | None:
    layers = range(reference_blocks.num_layers(config))
    types = config.get("layer_types")
    if config["model_type"].startswith("lfm2"):
        with_attention = config.get("full_attn_idxs", [])
        conv = [t == "conv" for t in types] if types else [i not in with_attention for i in layers]
        return StateRules(conv, config["conv_L_cache"], silu=False)
    if config["model_type"] == "granitemoehybrid":
        wide = config["mamba_expand"] * config["hidden_size"]
        return StateRules(
            [t in ("mamba", "linear_attention") for t in types],
            config["mamba_d_conv"],
            value_heads=config["mamba_n_heads"],
            key_dim=config["mamba_d_state"],
            value_dim=wide // config["mamba_n_heads"],
            groups=config["mamba_n_groups"],
            eps=config["rms_norm_eps"],
            norm_first=False,
        )
    if config["model_type"] == "nemotron_h":
        return StateRules(
            [block == "M" for block in reference_blocks.blocks_of(config) or ""],
            config["conv_kernel"],
            value_heads=config["mamba_num_heads"],
            key_dim=config["ssm_state_size"],
            value_dim=config["mamba_head_dim"],
            groups=config["n_groups"],
            eps=config["layer_norm_epsilon"],
            norm_first=False,
        )
    if config["model_type"] == "falcon_h1":
        wide = config["mamba_d_ssm"] or config["mamba_expand"] * config["hidden_size"]
        return StateRules(
            [True for _ in layers],
            config["mamba_d_conv"],
            value_heads=config["mamba_n_heads"],
            key_dim=config["mamba_d_state"],
            value_dim=wide // config["mamba_n_heads"],
            groups=config["mamba_n_groups"],
            eps=config["rms_norm_eps"],
            norm_first=config["mamba_norm_before_gate"],
            normed=config["mamba_rms_norm"],
            factors=tuple(config["ssm_multipliers"]),
        )
    if "linear_num_key_heads" not in config:
        return None
    interval = config.get("full_attention_interval", 4)
    linear = (
        [t == "linear_attention" for t in types]
        if types
        else [(i + 1) % interval != 0 for i in layers]
    )
    return StateRules(
        linear,
        config["linear_conv_kernel_dim"],
        config["linear_num_key_heads"],
        config["linear_num_value_heads"],
        config["linear_key_head_dim"],
        config["linear_value_head_dim"],
        config["rms_norm_eps"],
        query_scale=config["linear_key_head_dim"] ** -0.5,
    )


def mix(rules: StateRules, parts: Arrays, y: np.ndarray) -> np.ndarray:
    """What a layer with a state adds for rows y [tokens, hidden], the sequence's from its start."""
    if rules.groups:
        return _scan(rules, parts, y)
    return _delta(rules, parts, y) if rules.key_heads else _short_conv(rules, parts, y)


def convolve(rules: StateRules, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x [tokens, channels], weight [channels, 1, kernel]: its last column is of the row itself."""
    columns = weight[:, 0, ::-1] if rules.reversed_kernel else weight[:, 0]
    kernel = columns.shape[1]
    padded = np.concatenate([np.zeros((kernel - 1, x.shape[1])), x])
    out = sum(columns[:, j] * padded[j : j + len(x)] for j in range(kernel))
    return np.asarray(out)


def _short_conv(rules: StateRules, parts: Arrays, y: np.ndarray) -> np.ndarray:
    b, c, x = np.split(_linear(parts, "conv.in_proj", y), 3, axis=-1)
    mixed = convolve(rules, b * x, parts["conv.conv.weight"]) + parts.get("conv.conv.bias", 0.0)
    return _linear(parts, "conv.out_proj", c * (_silu(mixed) if rules.silu else mixed))


def _delta(rules: StateRules, parts: Arrays, y: np.ndarray) -> np.ndarray:
    tokens, keys = len(y), rules.key_heads * rules.key_dim
    z = _linear(parts, "linear_attn.in_proj_z", y).reshape(tokens, rules.value_heads, -1)
    b, a = (_linear(parts, f"linear_attn.in_proj_{name}", y) for name in "ba")
    mixed = convolve(
        rules, _linear(parts, "linear_attn.in_proj_qkv", y), parts["linear_attn.conv1d.weight"]
    )
    mixed = _silu(mixed) if rules.silu else mixed
    q, k, v = np.split(mixed, [keys, 2 * keys], axis=-1)
    q, k = (_heads(rules, x) for x in (q, k))
    q = q * rules.query_scale
    v = v.reshape(tokens, rules.value_heads, rules.value_dim)
    beta = 1 / (1 + np.exp(-b))
    steps = np.logaddexp(0, a + parts["linear_attn.dt_bias"])
    decay = np.exp(-np.exp(parts["linear_attn.A_log"]) * steps)
    if not rules.decays:
        decay = np.ones_like(decay)
    read = _recur(rules, q, k, v, decay, beta)
    gated = _gated_norm(rules, read, z, parts["linear_attn.norm.weight"])
    return _linear(parts, "linear_attn.out_proj", gated.reshape(tokens, -1))


def _heads(rules: StateRules, x: np.ndarray) -> np.ndarray:
    """[tokens, value heads, key_dim] of queries or keys."""
    x = x.reshape(len(x), rules.key_heads, rules.key_dim)
    if rules.unit_length:
        x = x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-6)
    share = rules.value_heads // rules.key_heads
    return np.repeat(x, share, axis=1) if rules.neighbours else np.tile(x, (1, share, 1))


def _recur(
    rules: StateRules,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.ndarray,
    beta: np.ndarray,
) -> np.ndarray:
    state = np.zeros((rules.value_heads, rules.key_dim, rules.value_dim))
    out = np.empty_like(v)
    for t in range(len(v)):
        faded = state * decay[t, :, None, None]
        known = np.einsum("hkv,hk->hv", faded if rules.decay_first else state, k[t])
        written = beta[t, :, None] * (v[t] - known)
        state = faded + np.einsum("hk,hv->hkv", k[t], written)
        out[t] = np.einsum("hkv,hk->hv", state if rules.sees_itself else faded, q[t])
    return out


def _scan(rules: StateRules, parts: Arrays, y: np.ndarray) -> np.ndarray:
    tokens, heads = len(y), rules.value_heads
    wide, narrow = heads * rules.value_dim, rules.groups * rules.key_dim
    sizes = [wide, wide, narrow, narrow, heads]
    rows = _linear(parts, "mamba.in_proj", y) * np.repeat(rules.factors, sizes)
    z, mixed, dt = np.split(rows, [wide, 2 * wide + 2 * narrow], axis=-1)
    mixed = convolve(rules, mixed, parts["mamba.conv1d.weight"])
    mixed = mixed + parts.get("mamba.conv1d.bias", 0.0)
    mixed = _silu(mixed) if rules.silu else mixed
    x, b, c = np.split(mixed, [wide, wide + narrow], axis=-1)
    x = x.reshape(tokens, heads, rules.value_dim)
    b, c = (_groups(rules, rows) for rows in (b, c))
    steps = np.logaddexp(0, dt + parts["mamba.dt_bias"])
    decay = np.exp(-np.exp(parts["mamba.A_log"]) * steps)
    if not rules.decays:
        decay = np.ones_like(decay)
    state = np.zeros((heads, rules.key_dim, rules.value_dim))
    out = np.empty_like(x)
    for t in range(tokens):
        faded = state * decay[t, :, None, None]
        state = faded + np.einsum("hk,hv->hkv", b[t], steps[t, :, None] * x[t])
        out[t] = np.einsum("hkv,hk->hv", state if rules.sees_itself else faded, c[t])
    if rules.skips:
        out = out + parts["mamba.D"][:, None] * x
    out, z = (rows.reshape(tokens, rules.groups, -1) for rows in (out, z))
    weight = parts.get("mamba.norm.weight", np.ones(wide)).reshape(rules.groups, -1)
    return _linear(parts, "mamba.out_proj", _gated_norm(rules, out, z, weight).reshape(tokens, -1))


def _groups(rules: StateRules, x: np.ndarray) -> np.ndarray:
    """[tokens, heads, key_dim] of B or C."""
    x = x.reshape(len(x), rules.groups, rules.key_dim)
    share = rules.value_heads // rules.groups
    return np.repeat(x, share, axis=1) if rules.neighbours else np.tile(x, (1, share, 1))


def _gated_norm(rules: StateRules, x: np.ndarray, z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    gate = _silu(z) if rules.gates else np.ones_like(z)
    x = x if rules.norm_first else x * gate
    if rules.normed:
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + rules.eps)
        x = x * (weight + rules.norm_offset)
    return x * gate if rules.norm_first else x


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _linear(parts: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return x @ parts[f"{name}.weight"].T + parts.get(f"{name}.bias", 0.0)


def plain_names(weights: Arrays) -> Arrays:
    """LFM2's tensors under the names of Llama's."""
    if "model.embedding_norm.weight" not in weights:
        return weights
    plain = {}
    for name, array in weights.items():
        for stored, usual in LFM2_NAMES.items():
            name = name.replace(stored, usual)
        plain[name] = array
    return plain


def ungroup(rules: StateRules, name: str, array: np.ndarray) -> Arrays:
    """Qwen3-Next's rows, which are together for each key head, role by role."""
    share = rules.value_heads // rules.key_heads
    grouped = array.reshape(rules.key_heads, -1, array.shape[-1])
    if name.endswith("in_proj_ba.weight"):
        sizes, stem = [share, share], name.removesuffix("ba.weight")
    else:
        wide = share * rules.value_dim
        sizes, stem = [rules.key_dim, rules.key_dim, wide, wide], name.removesuffix("qkvz.weight")
    ends = np.cumsum(sizes)[:-1]
    roles = [x.reshape(-1, array.shape[-1]) for x in np.split(grouped, ends, axis=1)]
    if len(roles) == 2:
        return {f"{stem}b.weight": roles[0], f"{stem}a.weight": roles[1]}
    return {f"{stem}qkv.weight": np.concatenate(roles[:3]), f"{stem}z.weight": roles[3]}

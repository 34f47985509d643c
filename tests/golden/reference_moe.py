"""The rules of README.md for layers with experts, in float64; reference.py uses them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import reference_blocks
from routing import experts_per_token

Arrays = dict[str, np.ndarray]

MIXTRAL = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
GRANITE_EXPERTS = {
    "input_linear": "mlp.experts.gate_up_proj",
    "output_linear": "mlp.experts.down_proj",
    "router.layer": "mlp.gate.weight",
}
MIXTRAL_EXPERT = re.compile(r"(.*)\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.weight")


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _relu2(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0) ** 2


ACTIVATIONS = {"silu": _silu, "gelu_tanh": _gelu_tanh, "relu2": _relu2}


@dataclasses.dataclass(frozen=True, slots=True)
class Clamp:
    """gpt-oss's gate: g * sigmoid(alpha * g) of a gate below the limit, times what goes through it,
    within the limit, plus 1."""

    limit: float
    alpha: float
    added: float = 1.0
    both_sides: bool = False  # of the gate (wrong)

    def __call__(self, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        gate = np.clip(gate, -self.limit if self.both_sides else None, self.limit)
        opened = gate / (1 + np.exp(-self.alpha * gate))
        return opened * (np.clip(up, -self.limit, self.limit) + self.added)


@dataclasses.dataclass(slots=True)
class ExpertRules:
    """Tests change single fields to see the answers change."""

    sparse: list[bool]  # per layer: it has experts
    k: int  # experts per token
    normalize: bool  # weights are divided by their sum
    norm_min: float = 0.0  # which counts as at least this
    norm_eps: float = 0.0  # which is added to it
    sigmoid: bool = False  # scores are each expert's own, not a softmax
    scale: float = 1.0  # of the weights
    groups: int = 1  # of neighbours
    top_groups: int = 1  # experts are of these
    best_of_group: int = 2  # by whose sum groups are compared
    lowest_id: bool = True  # wins a tie
    correction: float = 1.0  # times the correction bias, which steers the selection
    weigh_corrected: bool = False  # weights from corrected scores (wrong)
    activation: str = "silu"
    clamp: Clamp | None = None  # instead of it
    scale: float = 1.0  # of weights


def rules_of(config: dict[str, Any]) -> ExpertRules | None:
    family = config["model_type"]
    layers = range(reference_blocks.num_layers(config))
    if family == "nemotron_h" and "n_routed_experts" in config:
        return ExpertRules(
            [block == "E" for block in reference_blocks.blocks_of(config) or ""],
            experts_per_token(config),
            config["norm_topk_prob"],
            sigmoid=True,
            norm_eps=1e-20,
            scale=config["routed_scaling_factor"],
            activation="relu2",
        )
    if family == "ernie4_5_moe":
        end = config.get("moe_layer_end_index", -1)
        last = end if end >= 0 else layers[-1]
        step, first = config["moe_layer_interval"], config["moe_layer_start_index"]
        sparse = [(i + 1) % step == 0 and first <= i <= last for i in layers]
        return ExpertRules(
            sparse, experts_per_token(config), True, config.get("moe_norm_min", 1e-12)
        )
    if family == "lfm2_moe":
        sparse = [i >= config["num_dense_layers"] for i in layers]
        return ExpertRules(sparse, experts_per_token(config), True, sigmoid=True, norm_eps=1e-6)
    if family == "glm4_moe":
        return ExpertRules(
            [i >= config["first_k_dense_replace"] for i in layers],
            experts_per_token(config),
            config["norm_topk_prob"],
            sigmoid=True,
            norm_eps=1e-20,
            scale=config["routed_scaling_factor"],
            groups=config["n_group"],
            top_groups=config["topk_group"],
        )
    if family == "granitemoehybrid" and not config["num_local_experts"]:
        return None
    if family in ("qwen3_5_moe_text", "granitemoehybrid"):
        return ExpertRules([True for _ in layers], experts_per_token(config), True)
    if family in ("qwen2_moe", "qwen3_moe", "qwen3_next"):
        step, dense = config["decoder_sparse_step"], config.get("mlp_only_layers", [])
        sparse = [i not in dense and (i + 1) % step == 0 for i in layers]
        return ExpertRules(sparse, experts_per_token(config), config["norm_topk_prob"])
    if family in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
        return _latent_rules(config)
    if family == "gemma4_text":
        if not config["enable_moe_block"]:
            return None
        k = experts_per_token(config)
        return ExpertRules([True for _ in layers], k, True, activation="gelu_tanh")
    if family == "mixtral":
        return ExpertRules([True for _ in layers], experts_per_token(config), True)
    if family == "gpt_oss":  # a softmax of the scores that were taken is this, too
        clamp = Clamp(config["swiglu_limit"], config.get("swiglu_alpha", 1.702))
        return ExpertRules([True for _ in layers], experts_per_token(config), True, clamp=clamp)
    return None


def _latent_rules(config: dict[str, Any]) -> ExpertRules:
    """Of families with latent attention."""
    layers = range(config["num_hidden_layers"])
    types = config.get("mlp_layer_types")
    dense = config.get("first_k_dense_replace", 1)
    sparse = [types[i] == "sparse" if types else i >= dense for i in layers]
    k, scale = experts_per_token(config), config["routed_scaling_factor"]
    groups = {"groups": config["n_group"], "top_groups": config["topk_group"]}
    if config["model_type"] == "deepseek_v2":
        return ExpertRules(sparse, k, False, scale=scale, best_of_group=1, **groups)
    normalize = config["norm_topk_prob"]
    return ExpertRules(sparse, k, normalize, sigmoid=True, norm_eps=1e-20, scale=scale, **groups)


def route(rules: ExpertRules, parts: Arrays, y: np.ndarray) -> np.ndarray:
    """[tokens, experts] weights, 0 for experts that are not taken."""
    scores = y @ parts["mlp.gate.weight"].T + parts.get("mlp.gate.bias", 0.0)
    if rules.sigmoid:
        scores = 1 / (1 + np.exp(-scores))
    else:
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
    bias = parts.get("mlp.moe_statics.e_score_correction_bias", np.zeros(1))
    corrected = scores + rules.correction * bias.reshape(-1)
    allowed = np.where(_of_best_groups(rules, corrected), corrected, -np.inf)
    if rules.lowest_id:
        order = np.argsort(-allowed, axis=-1, kind="stable")
    else:
        order = np.argsort(allowed, axis=-1, kind="stable")[:, ::-1]
    taken = np.zeros(scores.shape, bool)
    np.put_along_axis(taken, order[:, : rules.k], True, axis=-1)
    weights = np.where(taken, corrected if rules.weigh_corrected else scores, 0.0)
    if rules.normalize:
        weights /= np.maximum(weights.sum(axis=-1, keepdims=True), rules.norm_min) + rules.norm_eps
    return weights * rules.scale


def _of_best_groups(rules: ExpertRules, corrected: np.ndarray) -> np.ndarray:
    """[tokens, experts]: its group is one of the best."""
    grouped = corrected.reshape(len(corrected), rules.groups, -1)
    sums = np.sort(grouped, axis=-1)[..., -rules.best_of_group :].sum(axis=-1)
    order = np.argsort(-sums, axis=-1, kind="stable")[:, : rules.top_groups]
    best = np.zeros(sums.shape, bool)
    np.put_along_axis(best, order, True, axis=-1)
    return np.repeat(best, grouped.shape[-1], axis=-1)


def feed_forward(rules: ExpertRules, parts: Arrays, y: np.ndarray) -> np.ndarray:
    weights = route(rules, parts, y)
    if "mlp.fc1_latent_proj.weight" in parts:
        latent = linear(parts, "mlp.fc1_latent_proj", y)
        out = linear(parts, "mlp.fc2_latent_proj", mix_experts(rules, parts, latent, weights))
    else:
        out = mix_experts(rules, parts, y, weights)
    if "mlp.shared_experts.down_proj.weight" in parts:
        out += mlp(parts, "mlp.shared_experts", y, rules.activation)
    if "mlp.shared_expert.gate_proj.weight" in parts:
        gate = parts.get("mlp.shared_expert_gate.weight")
        opened = 1.0 if gate is None else 1 / (1 + np.exp(-(y @ gate.T)))
        out += opened * mlp(parts, "mlp.shared_expert", y)
    return out


def mix_experts(
    rules: ExpertRules, parts: Arrays, y: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    out = np.zeros_like(y)
    for expert, weight in enumerate(weights.T):
        rows = weight != 0
        own = mlp(parts, f"mlp.experts.{expert}", y[rows], rules.activation, rules.clamp)
        out[rows] += weight[rows, None] * own
    return out


def linear(parts: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return x @ parts[f"{name}.weight"].T + parts.get(f"{name}.bias", 0.0)


def mlp(
    parts: Arrays,
    stem: str,
    y: np.ndarray,
    activation: str = "silu",
    clamp: Clamp | None = None,
    gate_factor: float = 1.0,
) -> np.ndarray:
    up = linear(parts, f"{stem}.up_proj", y)
    if f"{stem}.gate_proj.weight" not in parts:
        return linear(parts, f"{stem}.down_proj", ACTIVATIONS[activation](up))
    gate = linear(parts, f"{stem}.gate_proj", y) * gate_factor
    opened = clamp(gate, up) if clamp else ACTIVATIONS[activation](gate) * up
    return linear(parts, f"{stem}.down_proj", opened)


def _granite_names(weights: Arrays) -> Arrays:
    """An MLP beside experts is a shared one; without experts it is the MLP."""
    has_experts = any(".block_sparse_moe.router." in name for name in weights)
    mlp = "mlp.shared_experts." if has_experts else "mlp."
    plain: Arrays = {}
    for name, array in weights.items():
        stem, shared, module = name.partition("shared_mlp.")
        if module == "input_linear.weight":
            gate, up = np.split(array, 2)
            plain |= {f"{stem}{mlp}gate_proj.weight": gate, f"{stem}{mlp}up_proj.weight": up}
        elif shared:
            plain[f"{stem}{mlp}down_proj.weight"] = array
        else:
            for stored, usual in GRANITE_EXPERTS.items():
                name = name.replace(f"block_sparse_moe.{stored}.weight", usual)
            plain[name] = array
    return plain


def plain_names(weights: Arrays) -> Arrays:
    """Experts under the names of Qwen's files, whether Mixtral's or fused ones are given."""
    if any(name.endswith("experts.gate_up_proj_bias") for name in weights):
        return _gpt_oss_names(weights)
    plain: Arrays = {}
    for name, array in _granite_names(weights).items():
        if match := MIXTRAL_EXPERT.fullmatch(name):
            layer, expert, kind = match.groups()
            plain[f"{layer}.mlp.experts.{expert}.{MIXTRAL[kind]}.weight"] = array
        elif name.endswith("mlp.experts.gate_up_proj"):
            stem = name.removesuffix(".gate_up_proj")
            for expert, (gate, up) in enumerate(np.split(m, 2) for m in array):
                plain[f"{stem}.{expert}.gate_proj.weight"] = gate
                plain[f"{stem}.{expert}.up_proj.weight"] = up
        elif name.endswith("mlp.experts.down_proj"):
            for expert, down in enumerate(array):
                plain[name.replace("down_proj", f"{expert}.down_proj.weight")] = down
        else:
            name = name.replace("block_sparse_moe", "mlp")
            plain[name.replace("mlp.gate.e_score", "mlp.moe_statics.e_score")] = array
    return plain


def _gpt_oss_names(weights: Arrays) -> Arrays:
    """Of experts as [in, out], with biases; features of gate and up take turns."""
    plain: Arrays = {}
    for name, array in weights.items():
        stem, _, kind = name.rpartition(".")
        if not stem.endswith("mlp.experts"):
            plain[name.replace("mlp.router", "mlp.gate")] = array
            continue
        suffix = "bias" if kind.endswith("_bias") else "weight"
        for expert, matrix in enumerate(array):
            own = matrix.T  # of a bias itself
            if kind.startswith("down"):
                parts = {"down_proj": own}
            else:
                parts = {"gate_proj": own[0::2], "up_proj": own[1::2]}
            for part, rows in parts.items():
                plain[f"{stem}.{expert}.{part}.{suffix}"] = rows
    return plain

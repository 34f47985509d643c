"""What a config.json means to the numpy decoder of reference.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import reference_moe
import reference_states
from reference_rope import RopeRules

Config = dict[str, Any]


@dataclasses.dataclass(slots=True)
class Norms:
    """Names of a layer's norms before and behind its two blocks. None: there is no norm."""

    before_attention: str | None = "input_layernorm"
    behind_attention: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    behind_mlp: str | None = None


BEHIND = Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """What no key of a config says. Defaults are Llama's."""

    norms: Norms = dataclasses.field(default_factory=Norms)
    norm_kind: str = "rms"  # "rms", "rms_plus_one" (weights are stored less 1) or "layer"
    parallel: bool = False  # attention and MLP both read the first norm
    qk_norm: str = "none"  # of each "head", of a whole "row", or of a head that is "rotated"
    interleaved: bool = False  # rope turns neighbours, not halves
    theta: float = 10000.0
    partial: float = 1.0  # the part of a head that is rotated
    gate: bool = False  # attention's result is multiplied by gates
    pattern: int | None = None  # every such layer is full, the others have the window


GEMMA_NORMS = Norms(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
GLM4_NORMS = Norms(
    "input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"
)
QWEN3_5 = Family(norm_kind="rms_plus_one", qk_norm="head", partial=0.25, gate=True)
FAMILIES = {
    "ernie4_5": Family(interleaved=True, theta=500000.0),
    "ernie4_5_moe": Family(interleaved=True, theta=500000.0),
    "qwen3": Family(qk_norm="head"),
    "qwen3_moe": Family(qk_norm="head"),
    "gemma2": Family(GEMMA_NORMS, "rms_plus_one", pattern=2),
    "gemma3_text": Family(GEMMA_NORMS, "rms_plus_one", qk_norm="head", theta=1e6, pattern=6),
    "smollm3": Family(theta=2e6),
    "olmo2": Family(BEHIND, qk_norm="row"),
    "olmo3": Family(BEHIND, qk_norm="row", theta=5e5, pattern=4),
    "exaone4": Family(BEHIND, qk_norm="head", pattern=4),
    "glm4": Family(GLM4_NORMS, interleaved=True, partial=0.5),
    "glm4_moe": Family(qk_norm="head", partial=0.5),
    "cohere2": Family(Norms(before_mlp=None), "layer", parallel=True, interleaved=True, pattern=4),
    "hunyuan_v1_dense": Family(qk_norm="rotated"),
    "lfm2": Family(qk_norm="head", theta=1e6),
    "lfm2_moe": Family(qk_norm="head", theta=1e6),
    "qwen3_5_text": QWEN3_5,
    "qwen3_5_moe_text": QWEN3_5,
    "qwen3_next": QWEN3_5,
    "granitemoehybrid": Family(),
    "gpt_oss": Family(theta=150000.0, pattern=2),
}
WITH_ONE_WINDOW = ("mistral", "mixtral", "phi3", "ministral3")
WITH_TWO_ROPES = ("gemma3_text", "olmo3")
WITHOUT_ROPE_ON_FULL_LAYERS = ("exaone4", "cohere2")


@dataclasses.dataclass(slots=True)
class Rules:
    """What a config.json means. Tests change single fields to see the answers change."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    windows: list[int | None]  # per layer; None: all earlier tokens are seen
    ropes: list[RopeRules | None]  # per layer; None: nothing is rotated
    interleaved: bool
    qk_norm: str  # as Family says
    norms: Norms
    norm_kind: str
    parallel: bool
    activation: str  # "silu" or "gelu_tanh"
    score_scale: float  # of q . k
    score_cap: float | None
    query_growth: tuple[float, int] | None  # beta, and the length that it counts
    embedding_scale: float
    residual_scale: float  # of what a block adds
    logit_scale: float
    logit_cap: float | None
    attention_gate: bool
    experts: reference_moe.ExpertRules | None
    states: reference_states.StateRules | None


def rules_of(config: Config) -> Rules:
    config = config.get("text_config", config)
    family = FAMILIES.get(config["model_type"], Family())
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    sliding = _sliding(config, family)
    window = config.get("sliding_window")
    ropes = _ropes(config, family, head_dim, sliding)
    gemma = config["model_type"].startswith("gemma")
    eps_key = "layer_norm_eps" if family.norm_kind == "layer" else "rms_norm_eps"
    eps = config.get("norm_eps", config.get(eps_key))
    return Rules(
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=head_dim,
        eps=eps,
        windows=[window if slides else None for slides in sliding],
        ropes=ropes,
        interleaved=family.interleaved,
        qk_norm=family.qk_norm if config.get("use_qk_norm", True) else "none",
        norms=dataclasses.replace(family.norms),
        norm_kind=family.norm_kind,
        parallel=family.parallel,
        activation="gelu_tanh" if gemma else "silu",
        score_scale=_score_scale(config, head_dim),
        score_cap=config.get("attn_logit_softcapping"),
        query_growth=_query_growth(ropes[0]),
        embedding_scale=_embedding_scale(config),
        residual_scale=config.get("residual_multiplier", 1.0),
        logit_scale=config.get("logit_scale", 1.0) / config.get("logits_scaling", 1.0),
        logit_cap=config.get("final_logit_softcapping"),
        attention_gate=family.gate,
        experts=reference_moe.rules_of(config),
        states=reference_states.rules_of(config),
    )


def _sliding(config: Config, family: Family) -> list[bool]:
    """Per layer, whether it has the window."""
    layers = range(config["num_hidden_layers"])
    kind = config["model_type"]
    if config.get("sliding_window") is None or config.get("use_sliding_window") is False:
        return [False for _ in layers]
    if kind == "smollm3":
        return [not has_rope for has_rope in _have_rope(config)]
    if kind in WITH_ONE_WINDOW or kind == "qwen3_moe":
        return [True for _ in layers]
    if config.get("layer_types"):
        return [layer_type == "sliding_attention" for layer_type in config["layer_types"]]
    if kind in ("qwen2", "qwen3"):
        return [layer >= config["max_window_layers"] for layer in layers]
    pattern = config.get("sliding_window_pattern", family.pattern)
    return [(layer + 1) % pattern != 0 for layer in layers]


def _have_rope(config: Config) -> list[bool]:
    layers = range(config["num_hidden_layers"])
    interval = config["no_rope_layer_interval"]
    listed = config.get("no_rope_layers") or [(layer + 1) % interval for layer in layers]
    return [bool(one) for one in listed]


def _ropes(
    config: Config, family: Family, head_dim: int, sliding: list[bool]
) -> list[RopeRules | None]:
    kind = config["model_type"]
    if kind in WITH_TWO_ROPES:
        full, windowed = _two_ropes(config, family, head_dim)
        return [windowed if slides else full for slides in sliding]
    params = config.get("rope_scaling") or config.get("rope_parameters") or {}
    theta = params.get("rope_theta", config.get("rope_theta", family.theta))
    rope = _rope(config, _known(config, params), theta, family, head_dim)
    if config.get("position_embedding_type") == "nope":
        return [None for _ in sliding]
    if kind == "smollm3":
        return [rope if has_rope else None for has_rope in _have_rope(config)]
    if kind in WITHOUT_ROPE_ON_FULL_LAYERS and config["sliding_window"] is not None:
        return [rope if slides else None for slides in sliding]
    return [rope for _ in sliding]


def _two_ropes(config: Config, family: Family, head_dim: int) -> tuple[RopeRules, RopeRules]:
    """Of full layers, and of those with a window."""
    nested = config.get("rope_parameters") or {}
    full = nested.get("full_attention") or config.get("rope_scaling") or {}
    windowed = nested.get("sliding_attention") or {}
    theta = full.get("rope_theta", config.get("rope_theta", family.theta))
    local = 10000.0 if config["model_type"] == "gemma3_text" else family.theta
    local = windowed.get("rope_theta", config.get("rope_local_base_freq", local))
    return (
        _rope(config, full, theta, family, head_dim),
        _rope(config, windowed, local, family, head_dim),
    )


def _rope(config: Config, params: Config, theta: float, family: Family, head_dim: int) -> RopeRules:
    partial = config.get("partial_rotary_factor", family.partial)
    partial = params.get("partial_rotary_factor", partial)
    original = params.get("original_max_position_embeddings", config["max_position_embeddings"])
    return RopeRules(
        params=params,
        theta=theta,
        dim=int(head_dim * partial),
        max_positions=config["max_position_embeddings"],
        original=config.get("original_max_position_embeddings", original),
    )


def _known(config: Config, params: Config) -> Config:
    """Two families have names of their own for kinds of rope."""
    kind = params.get("rope_type", params.get("type"))
    if config["model_type"] == "phi3" and kind in ("su", "yarn"):
        return {**params, "rope_type": "longrope"}
    if config["model_type"] == "hunyuan_v1_dense" and kind == "dynamic" and params.get("alpha"):
        return {**params, "rope_type": "alpha"}
    return params


def _score_scale(config: Config, head_dim: int) -> float:
    if "attention_multiplier" in config:
        return float(config["attention_multiplier"])
    return float(config.get("query_pre_attn_scalar", head_dim) ** -0.5)


def _query_growth(rope: RopeRules | None) -> tuple[float, int] | None:
    beta = rope.params.get("llama_4_scaling_beta") if rope else None
    return (beta, rope.original) if rope and beta else None


def _embedding_scale(config: Config) -> float:
    if config["model_type"].startswith("gemma"):
        return float(config["hidden_size"] ** 0.5)
    return float(config.get("embedding_multiplier", 1.0))

"""What a config.json means to the numpy decoder of reference.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import reference_blocks
import reference_gemma4
import reference_latent
import reference_moe
import reference_states
from reference_rope import RopeRules, yarn_scale

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
    local_theta: float | None = None  # of layers with a window; None: the same
    full_rope: Config = dataclasses.field(default_factory=dict)  # where a config says nothing


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
    "gemma3_text": Family(
        GEMMA_NORMS, "rms_plus_one", qk_norm="head", theta=1e6, local_theta=1e4, pattern=6
    ),
    "gemma4_text": Family(
        GEMMA_NORMS,
        qk_norm="head",
        theta=1e6,
        local_theta=1e4,
        pattern=6,
        full_rope={"rope_type": "proportional", "partial_rotary_factor": 0.25},
    ),
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
    "nemotron_h": Family(),
    "falcon_h1": Family(),
    "deepseek_v2": Family(interleaved=True),
    "deepseek_v3": Family(interleaved=True),
    "glm4_moe_lite": Family(interleaved=True),
    "gpt_oss": Family(theta=150000.0, pattern=2),
}
WITH_ONE_WINDOW = ("mistral", "mixtral", "phi3", "ministral3")
WITH_TWO_ROPES = ("gemma3_text", "gemma4_text", "olmo3")
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
    activation: str  # "silu", "gelu_tanh" or "relu2"
    score_scale: float  # of q . k
    score_cap: float | None
    query_growth: tuple[float, int] | None  # beta, and the length that it counts
    embedding_scale: float
    residual_scale: float  # of what a block adds
    logit_scale: float
    logit_cap: float | None
    attention_gate: bool
    gate_factor: float  # of an MLP's gate, before its activation
    fed_scale: float  # of what an MLP gives
    blocks: str | None  # a letter for each layer of one block
    pair: reference_blocks.PairRules | None  # of layers with attention and a state
    experts: reference_moe.ExpertRules | None
    states: reference_states.StateRules | None
    gemma4: reference_gemma4.Gemma4Rules | None
    latent: reference_latent.LatentRules | None


def rules_of(config: Config) -> Rules:
    config = config.get("text_config", config)
    family = FAMILIES.get(config["model_type"], Family())
    head_dim = _head_dim(config)
    sliding = _sliding(config, family)
    window = config.get("sliding_window")
    ropes = _ropes(config, family, config.get("qk_rope_head_dim", head_dim), sliding)
    gemma = config["model_type"].startswith("gemma")
    eps_key = "layer_norm_eps" if family.norm_kind == "layer" else "rms_norm_eps"
    eps = config.get("norm_eps", config.get("layer_norm_epsilon", config.get(eps_key)))
    gate_factor, fed_scale = config.get("mlp_multipliers", (1.0, 1.0))
    return Rules(
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=head_dim,
        eps=eps,
        windows=[window if slides else None for slides in sliding],
        ropes=ropes,
        interleaved=family.interleaved,
        qk_norm=family.qk_norm if config.get("use_qk_norm", True) else "none",
        norms=_norms(config, family),
        norm_kind=family.norm_kind,
        parallel=family.parallel,
        activation="gelu_tanh" if gemma else config.get("mlp_hidden_act", "silu"),
        score_scale=_score_scale(config, head_dim, ropes[0]),
        score_cap=config.get("attn_logit_softcapping"),
        query_growth=_query_growth(ropes[0]),
        embedding_scale=_embedding_scale(config),
        residual_scale=config.get("residual_multiplier", 1.0),
        logit_scale=_logit_scale(config),
        logit_cap=config.get("final_logit_softcapping"),
        attention_gate=family.gate,
        gate_factor=gate_factor,
        fed_scale=fed_scale,
        blocks=reference_blocks.blocks_of(config),
        pair=reference_blocks.pair_of(config),
        experts=reference_moe.rules_of(config),
        states=reference_states.rules_of(config),
        gemma4=reference_gemma4.rules_of(config),
        latent=reference_latent.rules_of(config),
    )


def _head_dim(config: Config) -> int:
    """Of queries and keys."""
    if "kv_lora_rank" in config:
        return config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def _norms(config: Config, family: Family) -> Norms:
    """Where an MLP and experts both read the residual, each has norms of its own."""
    if config.get("enable_moe_block"):
        return dataclasses.replace(family.norms, before_mlp=None)
    return dataclasses.replace(family.norms)


def _sliding(config: Config, family: Family) -> list[bool]:
    """Per layer, whether it has the window."""
    layers = range(reference_blocks.num_layers(config))
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
    if config.get("position_embedding_type") == "nope" or kind == "nemotron_h":
        return [None for _ in sliding]
    if kind == "smollm3":
        return [rope if has_rope else None for has_rope in _have_rope(config)]
    if kind in WITHOUT_ROPE_ON_FULL_LAYERS and config["sliding_window"] is not None:
        return [rope if slides else None for slides in sliding]
    return [rope for _ in sliding]


def _two_ropes(config: Config, family: Family, head_dim: int) -> tuple[RopeRules, RopeRules]:
    """Of full layers, and of those with a window."""
    nested = config.get("rope_parameters") or {}
    full = nested.get("full_attention") or config.get("rope_scaling") or family.full_rope
    windowed = nested.get("sliding_attention") or {}
    theta = full.get("rope_theta", config.get("rope_theta", family.theta))
    local = config.get("rope_local_base_freq", family.local_theta or family.theta)
    local = windowed.get("rope_theta", local)
    return (
        _rope(config, full, theta, family, _full_head_dim(config, head_dim)),
        _rope(config, windowed, local, family, head_dim),
    )


def _full_head_dim(config: Config, head_dim: int) -> int:
    gemma4 = reference_gemma4.rules_of(config)
    return gemma4.heads[-1].head_dim if gemma4 else head_dim


def _rope(config: Config, params: Config, theta: float, family: Family, head_dim: int) -> RopeRules:
    partial = config.get("partial_rotary_factor", family.partial)
    partial = params.get("partial_rotary_factor", partial)
    if params.get("rope_type") == "proportional":
        partial = 1.0  # what doesn't turn has frequencies of 0
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


def _score_scale(config: Config, head_dim: int, rope: RopeRules | None) -> float:
    if config["model_type"] == "gemma4_text":
        return 1.0
    if "attention_multiplier" in config:
        return float(config["attention_multiplier"])
    scale = float(config.get("query_pre_attn_scalar", head_dim) ** -0.5)
    if "kv_lora_rank" in config and rope.params.get("mscale_all_dim"):
        scale *= yarn_scale(rope.params["factor"], rope.params["mscale_all_dim"]) ** 2
    return scale * float(config.get("key_multiplier", 1.0))


def _logit_scale(config: Config) -> float:
    scale = config.get("logit_scale", config.get("lm_head_multiplier", 1.0))
    return float(scale / config.get("logits_scaling", 1.0))


def _query_growth(rope: RopeRules | None) -> tuple[float, int] | None:
    beta = rope.params.get("llama_4_scaling_beta") if rope else None
    return (beta, rope.original) if rope and beta else None


def _embedding_scale(config: Config) -> float:
    if config["model_type"].startswith("gemma"):
        return float(config["hidden_size"] ** 0.5)
    return float(config.get("embedding_multiplier", 1.0))

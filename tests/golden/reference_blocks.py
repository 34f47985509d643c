"""Rules of layers of one block (Nemotron-H), and of attention beside a state (Falcon-H1)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

LETTERS = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
STEMS = {"M": "mamba", "*": "self_attn", "-": "mlp", "E": "mlp"}


@dataclasses.dataclass(frozen=True, slots=True)
class PairRules:
    """Factors of what attention and a state beside it read and give."""

    attention_in: float
    attention_out: float
    state_in: float
    state_out: float


def blocks_of(config: dict[str, Any]) -> str | None:
    """A letter for each layer of one block."""
    if config["model_type"] != "nemotron_h":
        return None
    types = config.get("layers_block_type")
    return "".join(LETTERS[t] for t in types) if types else config["hybrid_override_pattern"]


def num_layers(config: dict[str, Any]) -> int:
    return len(blocks_of(config) or range(config.get("num_hidden_layers", 0)))


def pair_of(config: dict[str, Any]) -> PairRules | None:
    if config["model_type"] != "falcon_h1":
        return None
    keys = ("attention_in", "attention_out", "ssm_in", "ssm_out")
    return PairRules(*(config[f"{key}_multiplier"] for key in keys))


def plain_names(blocks: str | None, weights: Arrays) -> Arrays:
    """Tensors of both families under the names of Llama's and Granite's."""
    plain = {}
    for name, array in weights.items():
        if blocks is not None:
            name = _nemotron_name(blocks, name)
        name = name.replace("model.final_layernorm", "model.norm")
        name = name.replace("pre_ff_layernorm", "post_attention_layernorm")
        if "mamba." not in name:
            name = name.replace("feed_forward.gate_proj", "mlp.gate_proj")
            name = name.replace("feed_forward.up_proj", "mlp.up_proj")
            name = name.replace("feed_forward.down_proj", "mlp.down_proj")
        plain[name] = array
    return plain


def _nemotron_name(blocks: str, name: str) -> str:
    name = name.replace("backbone.", "model.", 1)
    name = name.replace("model.embeddings", "model.embed_tokens")
    name = name.replace("model.norm_f", "model.norm")
    if not name.startswith("model.layers."):
        return name
    layer = name.split(".")[2]
    name = name.replace(f"{layer}.norm.", f"{layer}.input_layernorm.", 1)
    name = name.replace("mixer", STEMS[blocks[int(layer)]], 1)
    return name.replace("mlp.gate.e_score", "mlp.moe_statics.e_score")

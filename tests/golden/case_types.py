"""What a golden case is, and the config keys that all cases share."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

PROMPT_LENGTHS = (1, 17, 70, 131)  # block edges of 16, 64 and 128 tokens lie inside or behind them
NEW_TOKENS = 64
LOGIT_STEPS = (0, 1, 8, 31, 63)  # step s: the logits that choose generated token s

# A seed is accepted when greedy decoding is unambiguous and alive, and never ends by itself.
MIN_GAP = 2e-3  # best minus second best logit at each step, in standard deviations of the logits
MIN_DISTINCT = 16  # different tokens among the NEW_TOKENS of each prompt

# Allowed engine error in units of transformers' own float32 error; derived in README.md.
TOLERANCE_FACTOR = 4

# By how much the last expert chosen must lead the first one left out: more than a selection score
# of a token can move when sums are made in another order. README.md says how it is checked.
MIN_ROUTER_MARGIN = 4e-5


@dataclasses.dataclass(frozen=True, slots=True)
class Twin:
    """A second folder with the same weights and answers in another layout."""

    name: str
    layout: Literal["paddle", "fused_experts", "wrapped"]
    config: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Experts:
    """What a case asks of its routers beyond its config."""

    correction: tuple[float, float] | None = None  # mean and deviation; None: no such tensor
    equal: tuple[int, int] | None = None  # two experts with the same router row and correction


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One golden folder. `config` is written to config.json as it stands."""

    name: str
    about: str
    storage: str  # float32, bfloat16 or float16: the dtype of model.safetensors
    config: dict[str, Any]
    generation: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {"bos_token_id": 1, "eos_token_id": 2}
    )
    shards: int = 1
    twins: tuple[Twin, ...] = ()
    experts: Experts | None = None  # for models with experts
    mtp: bool = False  # the file has the tensors of a block that guesses tokens
    seed: int = 0  # the first to try; later ones spare the search


def base(architecture: str, model_type: str, **changes: Any) -> dict[str, Any]:
    """The keys every published config has, at tiny sizes, then the ones of this case."""
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.02,
        "intermediate_size": 96,
        "max_position_embeddings": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": 256,
    }
    config.update(changes)
    return config


def v5_style(config: dict[str, Any], **rope: Any) -> dict[str, Any]:
    """The same config as transformers 5 saves it: `dtype` and one `rope_parameters` object."""
    config = dict(config)
    config["dtype"] = config.pop("torch_dtype")
    config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), **rope}
    config["transformers_version"] = "5.23.0"
    return config

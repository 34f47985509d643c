"""Rules of layers that are not Llama's: each of them, broken, must show in golden answers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import load
import reference
from cases_layers import LAYER_CASES
from reference_rope import RopeRules
from reference_rules import BEHIND, Norms
from wrong_rules import (
    WINDOW_MISTAKES,
    Change,
    is_off,
    rules_of,
    with_fields,
    with_norms,
    with_reversed_windows,
    with_rope,
    with_rope_fields,
    with_ropes,
)

Ropes = list[RopeRules | None]
Tensors = Callable[[np.ndarray], np.ndarray]
GEMMAS = ("gemma2", "gemma3_text", "gemma3_text_v5")
TWO_ROPES = ("gemma3_text", "gemma3_text_v5", "olmo3", "olmo3_v5")
HYBRIDS = ("smollm3", "smollm3_window", "exaone4", "cohere2", "cohere2_v5")
BEHIND_ALONE = ("olmo2", "olmo3", "olmo3_v5", "exaone4", "exaone4_full")
IN_FRONT = Norms("post_attention_layernorm", None, "post_feedforward_layernorm", None)


def everywhere(ropes: Ropes) -> Ropes:
    """The first table in all layers."""
    first = next(rope for rope in ropes if rope)
    return [first for _ in ropes]


def the_last_everywhere(ropes: Ropes) -> Ropes:
    return everywhere(ropes[::-1])


def swapped(ropes: Ropes) -> Ropes:
    first, other = ropes[0], next(rope for rope in ropes if rope is not ropes[0])
    return [other if rope is first else first for rope in ropes]


def one_rotated_part_more(ropes: Ropes) -> Ropes:
    return [rope and dataclasses.replace(rope, dim=2 * rope.dim) for rope in ropes]


def one_after_the_other(rules: reference.Rules) -> reference.Rules:
    return with_norms(before_mlp="input_layernorm")(dataclasses.replace(rules, parallel=False))


MISTAKES: tuple[tuple[str, str, Change], ...] = (
    *((name, "w, not 1 + w", with_fields(norm_kind="rms")) for name in GEMMAS),
    *((name, "SiLU", with_fields(activation="silu")) for name in GEMMAS),
    *((name, "no embedding scale", with_fields(embedding_scale=1.0)) for name in GEMMAS),
    *((name, "scores by head size", with_fields(score_scale=16**-0.5)) for name in GEMMAS),
    *(
        (name, f"no norm {place}", with_norms(**{place: None}))
        for name in ("gemma2", "gemma3_text", "glm4", "glm4_v5")
        for place in ("behind_attention", "behind_mlp", "before_attention", "before_mlp")
    ),
    ("gemma2", "no cap on scores", with_fields(score_cap=None)),
    ("gemma2", "a cap of 2 on scores", with_fields(score_cap=2.0)),
    ("gemma2", "no cap on logits", with_fields(logit_cap=None)),
    ("gemma3_text_v5", "no cap on logits", with_fields(logit_cap=None)),
    *((name, "no q/k norm", with_fields(qk_norm="none")) for name in GEMMAS[1:]),
    *((name, "ropes swapped", with_ropes(swapped)) for name in (*TWO_ROPES, *HYBRIDS)),
    *((name, "one rope", with_ropes(everywhere)) for name in (*TWO_ROPES, *HYBRIDS)),
    *((name, "the other rope", with_ropes(the_last_everywhere)) for name in TWO_ROPES),
    *((name, "plain rope", with_rope(rope_type="default")) for name in (*TWO_ROPES, "exaone4")),
    *(
        (name, mistake, change)
        for name in (*GEMMAS, "olmo3", "olmo3_v5", "phi3_window", *HYBRIDS[1:])
        for mistake, change in WINDOW_MISTAKES
    ),
    *(
        (name, "layers", with_reversed_windows)
        for name in ("gemma3_text", "olmo3", "olmo3_v5", "exaone4", "cohere2", "cohere2_v5")
    ),
    *((name, "norms in front", with_fields(norms=IN_FRONT)) for name in BEHIND_ALONE),
    *((name, "no q/k norm", with_fields(qk_norm="none")) for name in BEHIND_ALONE),
    *((name, "q/k norm by head", with_fields(qk_norm="head")) for name in BEHIND_ALONE[:3]),
    *((name, "q/k norm rotated", with_fields(qk_norm="rotated")) for name in BEHIND_ALONE[3:]),
    ("olmo3", "attention factor", with_rope(attention_factor=None)),
    ("olmo3_v5", "attention factor", with_rope(attention_factor=1.0)),
    *((name, "all rotated", with_rope_fields(dim=32)) for name in ("phi3_partial", "glm4")),
    ("glm4_v5", "half rotated", with_ropes(one_rotated_part_more)),
    ("phi3_longrope_short", "long factors", with_rope_fields(original=64)),
    ("phi3_longrope_long", "short factors", with_rope_fields(original=224)),
    *(
        (f"phi3_longrope_{kind}", "attention factor", with_rope(attention_factor=1.0))
        for kind in ("short", "long")
    ),
    ("granite", "no embedding scale", with_fields(embedding_scale=1.0)),
    ("granite", "no residual scale", with_fields(residual_scale=1.0)),
    ("granite", "no logit scale", with_fields(logit_scale=1.0)),
    ("granite", "scores by head size", with_fields(score_scale=0.25)),
    *((name, "norms as OLMo's", with_fields(norms=BEHIND)) for name in ("gemma2", "gemma3_text")),
    ("exaone4_full", "no rope", with_ropes(lambda ropes: [None for _ in ropes])),
    ("ministral3", "queries do not grow", with_fields(query_growth=None)),
    ("ministral3", "queries grow at each position", with_fields(query_growth=(0.25, 1))),
    ("ministral3", "plain rope", with_rope(rope_type="default")),
    ("cohere2", "no mean taken off", with_fields(norm_kind="rms")),
    ("cohere2", "MLP behind attention", one_after_the_other),
    ("cohere2", "no logit scale", with_fields(logit_scale=1.0)),
    ("hunyuan_v1_dense", "norm before rope", with_fields(qk_norm="head")),
    ("hunyuan_v1_dense", "no q/k norm", with_fields(qk_norm="none")),
    ("hunyuan_v1_dense", "dynamic rope", with_rope(rope_type="dynamic")),
    ("hunyuan_v1_dense", "plain rope", with_rope(rope_type="default")),
)


@pytest.mark.parametrize(
    ("name", "mistake", "change"), MISTAKES, ids=[f"{m[0]}-{m[1]}" for m in MISTAKES]
)
def test_a_wrong_rule_would_be_seen(name: str, mistake: str, change: Change) -> None:
    golden = load.load_case(name)
    assert is_off(golden, change(rules_of(golden))), mistake


def swapped_halves(array: np.ndarray) -> np.ndarray:
    return np.concatenate(np.split(array, 2)[::-1])


def rolled(array: np.ndarray) -> np.ndarray:
    """Keys where values are, and so on."""
    return np.roll(array, 16, axis=0)


@pytest.mark.parametrize(
    ("name", "part", "change"),
    [
        ("phi3_window", "gate_up_proj.weight", swapped_halves),
        ("phi3_partial", "gate_up_proj.weight", swapped_halves),
        ("glm4", "gate_up_proj.weight", swapped_halves),
        ("phi3_window", "qkv_proj.weight", rolled),
        ("phi3_partial", "qkv_proj.weight", rolled),
        *(
            (name, f"{part}_proj.bias", np.zeros_like)
            for name in ("glm4", "seed_oss", "smollm3_window", "cohere2_v5")
            for part in "qv"
        ),
        *((name, "o_proj.bias", np.zeros_like) for name in ("smollm3_window", "cohere2_v5")),
        *(("smollm3_window", f"{part}_proj.bias", np.zeros_like) for part in ("up", "down")),
    ],
)
def test_wrong_rows_and_biases_would_be_seen(name: str, part: str, change: Tensors) -> None:
    golden = load.load_case(name)
    weights = load.read_checkpoint(golden.folder)
    wrong = {key: change(value) if key.endswith(part) else value for key, value in weights.items()}
    assert any(key.endswith(part) for key in weights)
    assert is_off(golden, rules_of(golden), wrong)


def test_no_other_layers_have_biases() -> None:
    """A key that says there is one, or a family that always has one, would be needed."""
    for case in LAYER_CASES:
        names = load.read_checkpoint(load.ROOT / case.name)
        biased = {name.split(".")[-2] for name in names if name.endswith(".bias")}
        config = case.config
        expected: set[str] = set()
        if config.get("attention_bias"):
            expected |= {"q_proj", "k_proj", "v_proj"}
            own_key = config["model_type"] in ("glm4", "seed_oss")
            expected |= set() if own_key else {"o_proj"}
        if config.get("mlp_bias"):
            expected |= {"gate_proj", "up_proj", "down_proj"}
        assert biased == expected

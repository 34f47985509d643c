"""Gemma 4: each of its rules, broken, must show in golden answers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import load
import reference
from cases_gemma4 import GEMMA4_CASES, GEMMA4_MOE_CASES
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

SHARED, KEYS_AS_VALUES = [case.name for case in GEMMA4_CASES]
(EXPERTS,) = [case.name for case in GEMMA4_MOE_CASES]
NAMES = [SHARED, KEYS_AS_VALUES, EXPERTS]
Tensors = Callable[[np.ndarray], np.ndarray]


def with_gemma4(**changes: Any) -> Change:
    return lambda rules: dataclasses.replace(
        rules, gemma4=dataclasses.replace(rules.gemma4, **changes)
    )


def with_experts(**changes: Any) -> Change:
    return lambda rules: dataclasses.replace(
        rules, experts=dataclasses.replace(rules.experts, **changes)
    )


def reading_from(pick: Callable[[list[int]], int]) -> Change:
    """Layers read another of the layers with heads of their size."""

    def change(rules: reference.Rules) -> reference.Rules:
        heads = rules.gemma4.heads
        own = [i for i, one in enumerate(heads) if one.reads is None]
        wrong = []
        for one in heads:
            alike = [i for i in own if heads[i].head_dim == one.head_dim]
            wrong.append(one if one.reads is None else dataclasses.replace(one, reads=pick(alike)))
        return with_gemma4(heads=wrong)(rules)

    return change


def with_one_rope(rules: reference.Rules) -> reference.Rules:
    """Full layers turn by the theta of those with a window."""
    local = next(rope for rope in rules.ropes if rope.kind == "default")
    return with_rope_fields(theta=local.theta)(rules)


ROPE_MISTAKES: tuple[tuple[str, Change], ...] = (
    ("all turns", with_rope(rope_type="default")),
    ("one theta", with_one_rope),
    (
        "frequencies of the part that turns",
        with_ropes(
            lambda ropes: [
                rope
                if rope.kind == "default"
                else dataclasses.replace(
                    rope,
                    dim=int(rope.dim * rope.params["partial_rotary_factor"]),
                    params={"rope_type": "default"},
                )
                for rope in ropes
            ]
        ),
    ),
)
MISTAKES: tuple[tuple[str, Change], ...] = (
    ("1 + w", with_fields(norm_kind="rms_plus_one")),
    ("no embedding scale", with_fields(embedding_scale=1.0)),
    ("scores by head size", with_fields(score_scale=16**-0.5)),
    ("no cap on logits", with_fields(logit_cap=None)),
    ("no q/k norm", with_fields(qk_norm="none")),
    ("no norm on values", with_gemma4(normed_values=False)),
    ("no layer scalar", with_gemma4(scalars=False)),
    *(
        (f"no norm {place}", with_norms(**{place: None}))
        for place in ("behind_attention", "behind_mlp", "before_attention")
    ),
    *ROPE_MISTAKES,
    *WINDOW_MISTAKES,
    ("windows in other layers", with_reversed_windows),
)
MISTAKES_OF_ONE: tuple[tuple[str, str, Change], ...] = (
    *((name, "SiLU", with_fields(activation="silu")) for name in NAMES[:2]),
    *((name, "no norm before_mlp", with_norms(before_mlp=None)) for name in NAMES[:2]),
    (SHARED, "the first layer's keys", reading_from(lambda alike: alike[0])),
    (SHARED, "no inputs of layers", with_gemma4(inputs=0)),
    (SHARED, "another layer's inputs", with_gemma4(inputs_of=1)),
    (SHARED, "a sum of inputs, not over the root of 2", with_gemma4(input_scale=1.0)),
    (SHARED, "a table as it is stored", with_gemma4(table_scale=1.0)),
    (SHARED, "a projection as it is", with_gemma4(projection_scale=1.0)),
    (EXPERTS, "SiLU in experts and the MLP", with_experts(activation="silu")),
    (EXPERTS, "experts read what the MLP reads", with_gemma4(experts_read_normed=True)),
    (EXPERTS, "routers read what the MLP reads", with_gemma4(router_reads_normed=True)),
    (EXPERTS, "routers not over the root of the size", with_gemma4(router_scale=1.0)),
    (EXPERTS, "experts as they are", with_gemma4(scales_experts=False)),
    (KEYS_AS_VALUES, "keys behind their norm as values", with_gemma4(values_as_keys=True)),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("mistake", "change"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_wrong_rule_would_be_seen(name: str, mistake: str, change: Change) -> None:
    golden = load.load_case(name)
    assert is_off(golden, change(rules_of(golden))), mistake


@pytest.mark.parametrize(
    ("name", "mistake", "change"), MISTAKES_OF_ONE, ids=[f"{m[0]}-{m[1]}" for m in MISTAKES_OF_ONE]
)
def test_a_wrong_rule_of_one_case_would_be_seen(name: str, mistake: str, change: Change) -> None:
    golden = load.load_case(name)
    assert is_off(golden, change(rules_of(golden))), mistake


@pytest.mark.parametrize(
    "part",
    ["embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm"],
)
def test_each_half_of_the_inputs_would_be_missed(part: str) -> None:
    golden = load.load_case(SHARED)
    weights = load.read_checkpoint(golden.folder)
    weights[f"model.{part}.weight"] = np.zeros_like(weights[f"model.{part}.weight"])
    assert is_off(golden, rules_of(golden), weights)


def ones(array: np.ndarray) -> np.ndarray:
    return np.ones_like(array)


def swapped_halves(array: np.ndarray) -> np.ndarray:
    return np.concatenate(np.split(array, 2, axis=1)[::-1], axis=1)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("post_feedforward_layernorm_1.weight", ones),
        ("post_feedforward_layernorm_2.weight", ones),
        ("pre_feedforward_layernorm_2.weight", ones),
        ("router.scale", ones),
        ("experts.down_proj", np.zeros_like),
        ("mlp.down_proj.weight", np.zeros_like),
        ("experts.gate_up_proj", swapped_halves),
    ],
)
def test_wrong_parts_of_experts_would_be_seen(part: str, change: Tensors) -> None:
    golden = load.load_case(EXPERTS)
    weights = load.read_checkpoint(golden.folder)
    wrong = {name: change(x) if name.endswith(part) else x for name, x in weights.items()}
    assert is_off(golden, rules_of(golden), wrong)


def test_files_have_what_the_rules_are_about() -> None:
    weights = load.read_checkpoint(load.ROOT / SHARED)
    width = {i: len(weights[f"model.layers.{i}.mlp.up_proj.weight"]) for i in (3, 4)}
    assert width[4] == 2 * width[3]
    assert "model.layers.4.self_attn.k_proj.weight" not in weights
    other = load.read_checkpoint(load.ROOT / KEYS_AS_VALUES)
    assert "model.layers.0.self_attn.v_proj.weight" in other
    assert "model.layers.1.self_attn.v_proj.weight" not in other
    scalars = [x for files in (weights, other) for n, x in files.items() if "layer_scalar" in n]
    assert len(scalars) == 10
    assert all(abs(x - 1) > 1e-3 for x in scalars)


def test_wrapped_files_have_keys_that_nobody_reads() -> None:
    weights = load.read_checkpoint(load.ROOT / "gemma4_wrapped")
    unread = weights["model.language_model.layers.5.self_attn.k_proj.weight"]
    assert unread.shape == (2 * 32, 48)
    assert not unread.any()

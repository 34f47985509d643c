"""Latent attention: each of its rules, broken, must show in golden answers."""

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
from cases_latent import LATENT_CASES
from wrong_rules import Change, config_of, is_off, rules_of, with_fields, with_rope

NAMES = [case.name for case in LATENT_CASES]
DEEPSEEK, GLM_V5 = "deepseek_v2", "glm4_moe_lite_v5"
Tensors = Callable[[np.ndarray], np.ndarray]


def with_latent(**changes: Any) -> Change:
    return lambda rules: dataclasses.replace(
        rules, latent=dataclasses.replace(rules.latent, **changes)
    )


def with_experts(**changes: Any) -> Change:
    return lambda rules: dataclasses.replace(
        rules, experts=dataclasses.replace(rules.experts, **changes)
    )


MISTAKES: tuple[tuple[str, Change], ...] = (
    ("the config's eps within attention", with_latent(eps=1e-2)),
    ("no norm on latent vectors", with_latent(normed=False)),
    ("a norm on what turns, too", with_latent(norms_all=True)),
    ("keys that don't turn", with_latent(turned=False)),
    ("keys that turn for the first head alone", with_latent(shared=False)),
    ("values before keys in a head's rows", with_latent(values_first=True)),
    ("all heads' keys before all values", with_latent(by_head=False)),
    ("scores by the part that doesn't turn", with_fields(score_scale=16**-0.5)),
)
# And the size of a head.
SCALED = [(DEEPSEEK, 24), ("deepseek_v2_groups", 24), ("deepseek_v3", 24), (GLM_V5, 24)]
MISTAKES_OF_ONE: tuple[tuple[str, str, Change], ...] = (
    *((name, "yarn leaves scores", with_fields(score_scale=d**-0.5)) for name, d in SCALED),
    *((name, "plain rope", with_rope(rope_type="default", type="default")) for name, _ in SCALED),
    (DEEPSEEK, "an attention factor of yarn's own", with_rope(mscale=None)),
    (GLM_V5, "no attention factor", with_rope(attention_factor=1.0)),
    *(
        (name, "no norm on latent queries", with_latent(normed_queries=False))
        for name in NAMES
        if name != DEEPSEEK
    ),
    (DEEPSEEK, "sigmoids", with_experts(sigmoid=True)),
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


def swapped_halves(array: np.ndarray) -> np.ndarray:
    return np.concatenate(np.split(array, 2)[::-1])


@pytest.mark.parametrize(
    ("name", "part", "change"),
    [
        *((name, "layers.0.mlp.down_proj.weight", np.zeros_like) for name in NAMES),
        *((name, "layers.1.mlp.shared_experts.down_proj.weight", np.zeros_like) for name in NAMES),
        (GLM_V5, "layers.2.mlp.down_proj.weight", np.zeros_like),
        (GLM_V5, "q_a_proj.bias", np.zeros_like),
        (GLM_V5, "kv_a_proj_with_mqa.bias", np.zeros_like),
        (GLM_V5, "self_attn.o_proj.bias", np.zeros_like),
        *((name, "kv_a_layernorm.weight", np.ones_like) for name in NAMES),
        *((name, "self_attn.o_proj.weight", swapped_halves) for name in NAMES),
    ],
)
def test_a_wrong_part_would_be_seen(name: str, part: str, change: Tensors) -> None:
    golden = load.load_case(name)
    weights = load.read_checkpoint(golden.folder)
    wrong = {key: change(x) if key.endswith(part) else x for key, x in weights.items()}
    assert is_off(golden, rules_of(golden), wrong)


def test_files_have_what_the_rules_are_about() -> None:
    row, factor = {}, {}
    for name in NAMES:
        golden = load.load_case(name)
        config = config_of(golden)
        row[name] = config["kv_lora_rank"] + config["qk_rope_head_dim"]
        factor[name] = golden.meta["rope"]["attention_factor"]
        assert config["v_head_dim"] != config["qk_nope_head_dim"]
    assert row["glm4_moe_lite"] % 16 != 0
    assert row[GLM_V5] % 16 == 0
    assert factor.pop(GLM_V5) > 1.1
    assert set(factor.values()) == {1.0}

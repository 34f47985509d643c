"""gpt-oss: each of its rules, broken, must show in golden answers."""

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
from cases_gpt_oss import GPT_OSS_CASES
from wrong_rules import (
    WINDOW_MISTAKES,
    Change,
    is_off,
    rules_of,
    with_reversed_windows,
    with_rope,
    with_rope_fields,
)

NAMES = [case.name for case in GPT_OSS_CASES]
Tensors = Callable[[np.ndarray], np.ndarray]


def with_clamp(**changes: float) -> Change:
    def change(rules: reference.Rules) -> reference.Rules:
        clamp = dataclasses.replace(rules.experts.clamp, **changes)
        return dataclasses.replace(rules, experts=dataclasses.replace(rules.experts, clamp=clamp))

    return change


def with_silu(rules: reference.Rules) -> reference.Rules:
    return dataclasses.replace(rules, experts=dataclasses.replace(rules.experts, clamp=None))


MISTAKES: tuple[tuple[str, Change], ...] = (
    ("up without 1", with_clamp(added=0.0)),
    ("another slope", with_clamp(alpha=1.0)),
    ("a limit of 7", with_clamp(limit=7.0)),
    ("a gate with two limits", with_clamp(both_sides=True)),
    ("SiLU", with_silu),
    *WINDOW_MISTAKES,
    ("windows in odd layers", with_reversed_windows),
    ("a truncated range", with_rope(truncate=True)),
    ("no attention factor", with_rope(attention_factor=1.0)),
    ("plain rope", with_rope(rope_type="default")),
    ("original length", with_rope_fields(original=32)),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("mistake", "change"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_wrong_rule_would_be_seen(name: str, mistake: str, change: Change) -> None:
    golden = load.load_case(name)
    assert is_off(golden, change(rules_of(golden))), mistake


def quartered(array: np.ndarray) -> np.ndarray:
    """Scaled as scores are, by the root of a head's 16 numbers."""
    return array / 4


def never(array: np.ndarray) -> np.ndarray:
    return np.full_like(array, -1e9)


def taken_as_halves(array: np.ndarray) -> np.ndarray:
    """Where gate and up lie as halves, those who take every second number read this."""
    return np.stack(np.split(array, 2, axis=-1), axis=-1).reshape(array.shape)


def swapped_pairs(array: np.ndarray) -> np.ndarray:
    pairs = array.reshape(*array.shape[:-1], -1, 2)
    return pairs[..., ::-1].reshape(array.shape)


def turned(array: np.ndarray) -> np.ndarray:
    """Inputs as outputs."""
    return array.transpose(0, 2, 1)


TENSORS: tuple[tuple[str, Tensors], ...] = (
    ("sinks", never),
    ("sinks", np.zeros_like),
    ("sinks", quartered),
    ("sinks", np.flip),
    ("router.bias", np.zeros_like),
    ("gate_up_proj", taken_as_halves),
    ("gate_up_proj_bias", taken_as_halves),
    ("gate_up_proj", swapped_pairs),
    ("gate_up_proj_bias", swapped_pairs),
    ("gate_up_proj_bias", np.zeros_like),
    ("down_proj_bias", np.zeros_like),
    *((f"{part}_proj.bias", np.zeros_like) for part in "qvo"),
)


def is_seen(name: str, part: str, change: Tensors) -> bool:
    golden = load.load_case(name)
    weights = load.read_checkpoint(golden.folder)
    wrong = {key: change(value) if key.endswith(part) else value for key, value in weights.items()}
    assert any(key.endswith(part) for key in weights)
    return is_off(golden, rules_of(golden), wrong)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("part", "change"), TENSORS, ids=[f"{part}-{change.__name__}" for part, change in TENSORS]
)
def test_a_wrong_tensor_would_be_seen(name: str, part: str, change: Tensors) -> None:
    assert is_seen(name, part, change)


def test_square_experts_that_are_not_turned_would_be_seen() -> None:
    """A down_proj as wide as it is high has one shape, stored either way."""
    assert is_seen("gpt_oss_mxfp4", "down_proj", turned)


def test_blocks_are_what_the_format_says() -> None:
    """The low half of a byte comes first; 2^(scale - 127); rows of gate and up take turns."""
    pairs = np.array([[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, *[0] * 8]], np.uint8)
    row = load._mxfp4(pairs, np.array([[128]]))[0, :16]
    assert row.tolist() == [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
    raw = load.read_safetensors(load.ROOT / "gpt_oss_mxfp4" / "model.safetensors")
    scales = np.concatenate([raw[name].ravel() for name in raw if name.endswith("_scales")])
    assert (np.unique(scales) >= 118).all()
    assert len(np.unique(scales)) >= 8

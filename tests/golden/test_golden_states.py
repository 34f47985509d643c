"""Rules of layers that keep a state: each of them, broken, must show in golden answers."""

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
from cases_states import STATE_CASES
from wrong_rules import Change, is_off, rules_of, with_fields, with_rope_fields, with_ropes

LFM2S = [case.name for case in STATE_CASES if case.name.startswith("lfm2")]
DELTAS = [case.name for case in STATE_CASES if case.name.startswith("qwen")]
ROUTED = [case.name for case in STATE_CASES if case.experts]
SCANS = [case.name for case in STATE_CASES if case.name.startswith("granite")]
NEMOTRONS = [case.name for case in STATE_CASES if case.name.startswith("nemotron")]
FALCONS = [case.name for case in STATE_CASES if case.name.startswith("falcon")]


def with_states(**changes: Any) -> Change:
    return lambda rules: dataclasses.replace(
        rules, states=dataclasses.replace(rules.states, **changes)
    )


def with_pair(**changes: float) -> Change:
    return lambda rules: dataclasses.replace(rules, pair=dataclasses.replace(rules.pair, **changes))


def without_one(index: int) -> Change:
    """Of the factors of z, x, B, C, dt."""

    def change(rules: reference.Rules) -> reference.Rules:
        factors = list(rules.states.factors)
        factors[index] = 1.0
        states = dataclasses.replace(rules.states, factors=tuple(factors))
        return dataclasses.replace(rules, states=states)

    return change


MISTAKES: tuple[tuple[str, str, Change], ...] = (
    *((name, "kernel from its end", with_states(reversed_kernel=True)) for name in LFM2S + DELTAS),
    *((name, "SiLU behind convolutions", with_states(silu=True)) for name in LFM2S),
    *((name, "no SiLU behind convolutions", with_states(silu=False)) for name in DELTAS),
    *((name, "no q/k norm", with_fields(qk_norm="none")) for name in LFM2S + DELTAS),
    *((name, "q and k of any length", with_states(unit_length=False)) for name in DELTAS),
    *((name, "no scale of q", with_states(query_scale=1.0)) for name in DELTAS),
    *((name, "no decay", with_states(decays=False)) for name in DELTAS),
    *((name, "decay after reading", with_states(decay_first=False)) for name in DELTAS),
    *((name, "a row not seen by itself", with_states(sees_itself=False)) for name in DELTAS),
    *((name, "gate before norm", with_states(norm_first=False)) for name in DELTAS),
    *((name, "1 + w in the gated norm", with_states(norm_offset=1.0)) for name in DELTAS),
    *((name, "no gate", with_states(gates=False)) for name in DELTAS),
    *((name, "w, not 1 + w", with_fields(norm_kind="rms")) for name in DELTAS),
    *((name, "no gate of attention", with_fields(attention_gate=False)) for name in DELTAS),
    *((name, "all rotated", with_rope_fields(dim=16)) for name in DELTAS),
    ("qwen3_5", "other heads of keys", with_states(neighbours=False)),
    ("qwen3_next", "other heads of keys", with_states(neighbours=False)),
    *((name, "kernel from its end", with_states(reversed_kernel=True)) for name in SCANS),
    *((name, "no SiLU behind convolutions", with_states(silu=False)) for name in SCANS),
    *((name, "no decay", with_states(decays=False)) for name in SCANS),
    *((name, "a row not seen by itself", with_states(sees_itself=False)) for name in SCANS),
    *((name, "norm before gate", with_states(norm_first=True)) for name in SCANS),
    *((name, "no gate", with_states(gates=False)) for name in SCANS),
    *((name, "no D", with_states(skips=False)) for name in SCANS),
    *((name, "no residual scale", with_fields(residual_scale=1.0)) for name in SCANS),
    *((name, "no SiLU behind convolutions", with_states(silu=False)) for name in NEMOTRONS),
    *((name, "norm before gate", with_states(norm_first=True)) for name in NEMOTRONS),
    *((name, "other groups", with_states(neighbours=False)) for name in NEMOTRONS),
    *((name, "SiLU in MLPs", with_fields(activation="silu")) for name in NEMOTRONS),
    *((name, f"no factor {i}", without_one(i)) for name in FALCONS for i in range(5)),
    *(
        (name, f"no factor {key}", with_pair(**{key: 1.0}))
        for name in FALCONS
        for key in ("attention_in", "attention_out", "state_in", "state_out")
    ),
    *((name, "no factor of gates", with_fields(gate_factor=1.0)) for name in FALCONS),
    *((name, "no factor of MLPs", with_fields(fed_scale=1.0)) for name in FALCONS),
    *((name, "no factor of keys", with_fields(score_scale=0.25)) for name in FALCONS),
    ("falcon_h1", "a norm behind the scan", with_states(normed=True)),
    ("falcon_h1_norm", "no norm behind the scan", with_states(normed=False)),
    ("falcon_h1_norm", "gate before norm", with_states(norm_first=False)),
    ("granite_hybrid_groups", "other groups", with_states(neighbours=False)),
    ("granite_hybrid_groups", "no rope", with_ropes(lambda ropes: [None for _ in ropes])),
)


@pytest.mark.parametrize(
    ("name", "mistake", "change"), MISTAKES, ids=[f"{m[0]}-{m[1]}" for m in MISTAKES]
)
def test_a_wrong_rule_would_be_seen(name: str, mistake: str, change: Change) -> None:
    golden = load.load_case(name)
    assert is_off(golden, change(rules_of(golden))), mistake


def swapped_thirds(array: np.ndarray) -> np.ndarray:
    first, second, third = np.split(array, 3)
    return np.concatenate([second, first, third])


def halves_of_all_heads(array: np.ndarray) -> np.ndarray:
    """Queries of all heads, then gates of all heads, read as if they took turns."""
    return array.reshape(2, -1, 32, array.shape[-1]).swapaxes(0, 1).reshape(array.shape)


@pytest.mark.parametrize(
    ("name", "part", "change"),
    [
        *((name, "conv.in_proj.weight", swapped_thirds) for name in LFM2S),
        *(
            ("lfm2_bias", f"conv.{part}.bias", np.zeros_like)
            for part in ("in_proj", "conv", "out_proj")
        ),
        ("qwen3_5", "q_proj.weight", halves_of_all_heads),
        *((name, "dt_bias", np.zeros_like) for name in DELTAS + SCANS),
        ("granite_hybrid", "mamba.conv1d.bias", np.zeros_like),
    ],
)
def test_wrong_rows_and_biases_would_be_seen(
    name: str, part: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    golden = load.load_case(name)
    weights = load.read_checkpoint(golden.folder)
    wrong = {key: change(value) if key.endswith(part) else value for key, value in weights.items()}
    assert any(key.endswith(part) for key in weights)
    assert is_off(golden, rules_of(golden), wrong)


@pytest.mark.parametrize("name", ROUTED)
def test_wrong_routing_would_be_seen(name: str) -> None:
    golden = load.load_case(name)
    rules: reference.Rules = rules_of(golden)
    wrong = [{"k": rules.experts.k + 1}, {"normalize": not rules.experts.normalize}]
    wrong += [{"sigmoid": not rules.experts.sigmoid}]
    if name in ("lfm2_moe", "nemotron_h_moe"):
        wrong += [{"correction": 0.0}, {"weigh_corrected": True}]
    if name == "nemotron_h_moe":
        wrong += [{"scale": 1.0}, {"activation": "silu"}]
    for changes in wrong:
        experts = dataclasses.replace(rules.experts, **changes)
        assert is_off(golden, dataclasses.replace(rules, experts=experts)), changes

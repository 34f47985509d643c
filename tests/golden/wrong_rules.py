"""Rules changed in one place, and whether golden answers would show it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import load
import numpy as np
import reference
from reference_rope import RopeRules

Arrays = dict[str, np.ndarray]
Change = Callable[[reference.Rules], reference.Rules]


def config_of(golden: load.Golden) -> dict[str, Any]:
    return json.loads((golden.folder / "config.json").read_text())


def rules_of(golden: load.Golden) -> reference.Rules:
    return reference.rules_of(config_of(golden))


def is_off(golden: load.Golden, rules: reference.Rules, weights: Arrays | None = None) -> bool:
    """Whether the numpy decoder under `rules` gives other logits for any prompt."""
    weights = weights or load.read_checkpoint(golden.folder)
    for p in sorted(golden.prompts, key=lambda p: len(p.prompt)):
        logits = reference.logits(rules, weights, p.prompt + p.tokens[:-1], len(p.prompt))
        rows = len(p.prompt) - 1 + np.array(golden.steps)
        if np.abs(logits[rows] - p.logits).max() > 10 * golden.logit_tolerance:
            return True
    return False


def with_fields(**changes: Any) -> Change:
    return lambda rules: dataclasses.replace(rules, **changes)


def with_norms(**changes: str | None) -> Change:
    return lambda rules: dataclasses.replace(
        rules, norms=dataclasses.replace(rules.norms, **changes)
    )


def with_rope(**changes: Any) -> Change:
    """Keys of the rope object, in all layers."""

    def change(rope: RopeRules) -> RopeRules:
        return dataclasses.replace(rope, params={**rope.params, **changes})

    return with_ropes(lambda ropes: [rope and change(rope) for rope in ropes])


def with_rope_fields(**changes: Any) -> Change:
    return with_ropes(
        lambda ropes: [rope and dataclasses.replace(rope, **changes) for rope in ropes]
    )


def with_ropes(change: Callable[[list[RopeRules | None]], list[RopeRules | None]]) -> Change:
    return lambda rules: dataclasses.replace(rules, ropes=change(rules.ropes))


def with_windows(change: Callable[[int | None], int | None]) -> Change:
    return lambda rules: dataclasses.replace(
        rules, windows=[change(window) for window in rules.windows]
    )


def with_reversed_windows(rules: reference.Rules) -> reference.Rules:
    return dataclasses.replace(rules, windows=rules.windows[::-1])


WINDOW_MISTAKES = (
    ("window + 1", with_windows(lambda window: window and window + 1)),
    ("window - 1", with_windows(lambda window: window and window - 1)),
    ("no window", with_windows(lambda window: None)),
)

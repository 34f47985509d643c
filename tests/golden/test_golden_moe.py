"""The golden cases with experts: each branch is there, and getting it wrong would be seen."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import load
import reference
import reference_moe
import routing
from case_types import MIN_ROUTER_MARGIN, TOLERANCE_FACTOR
from cases import CASES
from cases_moe import MOE_CASES
from wrong_rules import is_off, with_fields, with_rope_fields

NAMES = [case.name for case in MOE_CASES]
GUESSING = [
    name for case in CASES if case.mtp for name in (case.name, *(t.name for t in case.twins))
]
Change = Callable[[reference_moe.ExpertRules], reference_moe.ExpertRules]
Arrays = dict[str, np.ndarray]


def rules_of(golden: load.Golden) -> reference.Rules:
    return reference.rules_of(json.loads((golden.folder / "config.json").read_text()))


def largest_logit_error(golden: load.Golden, rules: reference.Rules, weights: Arrays) -> float:
    """Over the stored logits of the two shortest prompts, which reach every expert."""
    errors = []
    for p in golden.prompts[:2]:
        logits = reference.logits(rules, weights, p.prompt + p.tokens[:-1], len(p.prompt))
        rows = len(p.prompt) - 1 + np.array(golden.steps)
        errors.append(np.abs(logits[rows] - p.logits).max())
    return float(max(errors))


def by(**changes: object) -> Change:
    return lambda rules: dataclasses.replace(rules, **changes)  # type: ignore[arg-type]


def in_other_layers(rules: reference_moe.ExpertRules) -> reference_moe.ExpertRules:
    """One layer's experts forgotten: its shared part or nothing is left."""
    sparse = list(rules.sparse)
    sparse[sparse.index(True)] = False
    return dataclasses.replace(rules, sparse=sparse)


def with_other_norm(rules: reference_moe.ExpertRules) -> reference_moe.ExpertRules:
    return dataclasses.replace(rules, normalize=not rules.normalize)


def with_k(step: int) -> Change:
    return lambda rules: dataclasses.replace(rules, k=rules.k + step)


ERNIE = [name for name in NAMES if name.startswith("ernie")]
GLM = ["glm4_moe", "glm4_moe_groups"]
GLM_LITE = ["glm4_moe_lite", "glm4_moe_lite_v5"]
GROUPED = ["glm4_moe_groups", "deepseek_v3"]
CORRECTED = ["ernie4_5_moe", "ernie4_5_moe_ties", *GLM, *GLM_LITE, "deepseek_v3"]
RULES: list[tuple[str, str, Change]] = [
    *((name, "norm_topk_prob", with_other_norm) for name in NAMES),
    *((name, "one expert more", with_k(1)) for name in NAMES),
    *((name, "one expert fewer", with_k(-1)) for name in NAMES if name != "qwen3_moe_one"),
    *((name, "no correction", by(correction=0.0)) for name in CORRECTED),
    *((name, "corrected weights", by(weigh_corrected=True)) for name in CORRECTED),
    ("ernie4_5_moe_ties", "highest id", by(lowest_id=False)),
    ("ernie4_5_moe_interval", "no moe_norm_min", by(norm_min=0.0)),
    *((name, "a softmax", by(sigmoid=False)) for name in (*GLM, *GLM_LITE, "deepseek_v3")),
    *((name, "no scale", by(scale=1.0)) for name in (*GLM, *GLM_LITE, "deepseek_v2")),
    *((name, "no groups", by(groups=1, top_groups=1)) for name in (*GROUPED, "deepseek_v2_groups")),
    *((name, "one group more", by(top_groups=3)) for name in (*GROUPED, "deepseek_v2_groups")),
    *((name, "groups by their best", by(best_of_group=1)) for name in GROUPED),
    ("deepseek_v2_groups", "groups by their two best", by(best_of_group=2)),
]


@pytest.mark.parametrize(
    ("name", "mistake", "change"), RULES, ids=[f"{name}-{mistake}" for name, mistake, _ in RULES]
)
def test_a_wrong_routing_rule_would_be_seen(name: str, mistake: str, change: Change) -> None:
    golden = load.load_case(name)
    rules = rules_of(golden)
    assert rules.experts is not None
    rules.experts = change(rules.experts)
    error = largest_logit_error(golden, rules, load.read_checkpoint(golden.folder))
    assert error > 10 * golden.logit_tolerance, mistake


def without(part: str) -> Callable[[Arrays], Arrays]:
    return lambda weights: {name: array for name, array in weights.items() if part not in name}


def with_swapped(first: str, second: str) -> Callable[[Arrays], Arrays]:
    def swap(weights: Arrays) -> Arrays:
        names = {}
        for name in weights:
            names[name] = name
            if ".experts." in name:
                names[name] = name.replace(first, "?").replace(second, first).replace("?", second)
        return {names[name]: array for name, array in weights.items()}

    return swap


PARTS = [
    *(
        (name, with_swapped("gate_proj", "up_proj"))
        for name in NAMES
        if "moe" in name and name != "gemma4_moe"  # whose experts are fused
    ),
    *((name, with_swapped("w1", "w3")) for name in NAMES if "mixtral" in name),
    *((name, without("shared_expert")) for name in ("ernie4_5_moe", "qwen2_moe", *GLM)),
    ("glm4_moe", without("self_attn.q_proj.bias")),
    *((name, without("shared_expert_gate")) for name in NAMES if name.startswith("qwen2")),
]


@pytest.mark.parametrize(("name", "change"), PARTS, ids=range(len(PARTS)))
def test_a_wrong_part_would_be_seen(name: str, change: Callable[[Arrays], Arrays]) -> None:
    golden = load.load_case(name)
    weights = change(load.read_checkpoint(golden.folder))
    assert largest_logit_error(golden, rules_of(golden), weights) > 10 * golden.logit_tolerance


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("glm4_moe", with_rope_fields(dim=16)),
        ("glm4_moe_groups", with_rope_fields(dim=32)),
        *((name, with_fields(interleaved=True)) for name in GLM),
        ("glm4_moe_groups", with_fields(qk_norm="none")),
    ],
    ids=range(5),
)
def test_wrong_attention_would_be_seen(
    name: str, change: Callable[[reference.Rules], reference.Rules]
) -> None:
    golden = load.load_case(name)
    assert is_off(golden, change(rules_of(golden)))


@pytest.mark.parametrize("name", NAMES)
def test_choices_are_beyond_what_rounding_can_move(name: str) -> None:
    router = load.load_case(name).meta["router"]
    assert router["tolerance"] == TOLERANCE_FACTOR * router["float32_error"]
    assert router["margin"] >= max(MIN_ROUTER_MARGIN, 2 * router["tolerance"])


@pytest.mark.parametrize("name", NAMES)
def test_every_expert_is_used_and_none_always(name: str) -> None:
    golden = load.load_case(name)
    tokens = sum(len(p.prompt) + len(p.tokens) - 1 for p in golden.prompts)
    rules = rules_of(golden).experts
    assert rules is not None
    hits = golden.meta["router"]["hits"]
    assert len(hits) == sum(rules.sparse)
    for counts in hits:
        assert sum(counts) == tokens * rules.k
        assert min(counts) > 0
        assert max(counts) < tokens


def test_ties_happen_in_the_case_that_is_about_them() -> None:
    ties = {name: load.load_case(name).meta["router"]["ties"] for name in NAMES}
    assert ties.pop("ernie4_5_moe_ties") > 20
    assert not any(ties.values())


def test_the_correction_is_large_and_almost_constant() -> None:
    weights = load.read_checkpoint(load.load_case("ernie4_5_moe_ties").folder)
    biases = [array for name, array in weights.items() if name.endswith("correction_bias")]
    assert biases
    for bias in biases:
        assert bias.min() > 39
        assert 0 < np.ptp(bias) < 0.1


def test_files_have_the_tensors_of_the_block_that_guesses() -> None:
    for name, prefix in (("ernie4_5_moe", "model."), ("ernie4_5_moe_paddle", "ernie.")):
        weights = load.read_checkpoint(load.load_case(name).folder)
        stems = {key.split(".")[1] for key in weights if key.startswith(f"{prefix}mtp_")}
        assert stems == {"mtp_block", "mtp_emb_norm", "mtp_hidden_norm", "mtp_linear_proj"}
    # The model's experts are fused, the block's are not.
    names = load.read_checkpoint(load.load_case("qwen3_5_moe_wrapped").folder)
    experts = [name for name in names if ".layers.0.mlp.experts." in name]
    assert sum(name.startswith("mtp.") for name in experts) == 18
    assert len(experts) == 18 + 2


@pytest.mark.parametrize("name", GUESSING)
def test_guesses_are_what_the_formulas_say(name: str) -> None:
    golden = load.load_case(name)
    weights = load.read_checkpoint(golden.folder)
    guesses = json.loads((golden.folder / "mtp.json").read_text())
    arrays = load.read_safetensors(golden.folder / "mtp.safetensors")
    rules = rules_of(golden)
    for index, sequence in enumerate(guesses["sequences"][:2]):
        logits = reference.guess_logits(rules, weights, sequence["tokens"])
        want = arrays[f"logits.{index}"]
        assert np.abs(logits[sequence["rows"]] - want).max() <= guesses["tolerance"]
        clear = np.array(sequence["argmax"]) >= 0
        assert (logits.argmax(axis=-1) == sequence["argmax"])[clear].all()
        assert sequence["guesses"][0] == logits[-1].argmax()
        wrong = reference.guess_logits(rules, weights, sequence["tokens"], embedding_first=False)
        assert np.abs(wrong[sequence["rows"]] - want).max() > 100 * guesses["tolerance"]


def test_margin_counts_ties_as_decided_by_id() -> None:
    scores = [np.array([[0.5, 0.2, 0.2, 0.1]])]
    assert routing.margin(scores, 1) == pytest.approx(0.3)
    assert routing.margin(scores, 2) == pytest.approx(0.1)  # 1 or 2: the tie; 3 is next
    assert routing.margin(scores, 3) == pytest.approx(0.1)
    assert routing.tied(scores[0][0], 2)
    assert not routing.tied(scores[0][0], 3)
    assert routing.chosen(scores[0], 2).tolist() == [[0, 1]]

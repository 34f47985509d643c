"""Checks the committed golden folders with numpy alone: complete, consistent, and able to fail."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import load
import reference
from case_types import (
    LOGIT_STEPS,
    MIN_DISTINCT,
    MIN_GAP,
    NEW_TOKENS,
    PROMPT_LENGTHS,
    TOLERANCE_FACTOR,
    Case,
    Twin,
)
from cases import CASES
from cases_layers import LAYER_CASES
from cases_moe import MOE_CASES
from cases_states import STATE_CASES
from wrong_rules import (
    WINDOW_MISTAKES,
    Change,
    config_of,
    is_off,
    rules_of,
    with_fields,
    with_reversed_windows,
    with_rope,
    with_rope_fields,
    with_windows,
)

TWINS = [(case, twin) for case in CASES for twin in case.twins]
EXPECTED = [case.name for case in CASES] + [twin.name for _, twin in TWINS]
MAX_TOTAL_BYTES = 36_000_000


@pytest.fixture(params=EXPECTED)
def golden(request: pytest.FixtureRequest) -> load.Golden:
    return load.load_case(request.param)


def test_each_case_has_a_folder_and_each_folder_a_case() -> None:
    assert sorted(EXPECTED) == load.case_names()


def test_files_are_small() -> None:
    files = [path for path in load.ROOT.rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path in files if "__pycache__" not in path.parts)
    assert total < MAX_TOTAL_BYTES


def test_cases_cover_head_sizes_families_and_storage() -> None:
    rules = {name: rules_of(load.load_case(name)) for name in EXPECTED}
    assert {rule.head_dim for rule in rules.values()} >= {16, 48, 64, 80, 96, 128, 256}
    in_bf16 = {case.config["model_type"] for case in CASES if case.storage == "bfloat16"}
    dense = {"llama", "mistral", "qwen2", "qwen3", "ernie4_5"}
    layers = {case.config["model_type"] for case in (*MOE_CASES, *LAYER_CASES, *STATE_CASES)}
    assert in_bf16 == dense | layers
    assert {case.storage for case in CASES} == {"float32", "bfloat16", "float16"}


def test_configs_are_the_declared_ones() -> None:
    for case in CASES:
        assert config_of(load.load_case(case.name)) == case.config
    for _, twin in TWINS:
        assert config_of(load.load_case(twin.name)) == twin.config


def test_shapes_and_ranges(golden: load.Golden) -> None:
    config = config_of(golden)
    vocabulary = config.get("text_config", config)["vocab_size"]
    assert tuple(golden.steps) == LOGIT_STEPS
    assert tuple(len(p.prompt) for p in golden.prompts) == PROMPT_LENGTHS
    for p in golden.prompts:
        assert p.logits.shape == (len(LOGIT_STEPS), vocabulary)
        assert p.token_logprobs.shape == p.gaps.shape == (NEW_TOKENS,)
        assert p.prompt_logprobs.shape == (len(p.prompt) - 1,)
        assert len(p.tokens) == NEW_TOKENS
        assert all(0 <= token < vocabulary for token in p.prompt + p.tokens)
        assert (p.token_logprobs <= 0).all()
        assert (p.prompt_logprobs <= 0).all()
        for array in (p.logits, p.token_logprobs, p.gaps, p.prompt_logprobs):
            assert array.dtype == np.float32
            assert np.isfinite(array).all()


def test_greedy_decoding_is_clear(golden: load.Golden) -> None:
    generation = json.loads((golden.folder / "generation_config.json").read_text())
    ends = set(np.atleast_1d(generation["eos_token_id"]).tolist())
    for p in golden.prompts:
        assert p.gaps.min() >= MIN_GAP * p.logits.std(axis=-1).mean() * 0.9
        assert p.gaps.min() >= 2 * golden.logit_tolerance
        assert len(set(p.tokens)) >= MIN_DISTINCT
        assert not ends & set(p.tokens)


def test_stored_numbers_agree_with_each_other(golden: load.Golden) -> None:
    for p in golden.prompts:
        chosen = [p.tokens[step] for step in golden.steps]
        assert p.logits.argmax(axis=-1).tolist() == chosen
        best = np.sort(p.logits.astype(np.float64), axis=-1)
        assert np.allclose(best[:, -1] - best[:, -2], p.gaps[golden.steps], atol=1e-5)
        logprobs = best[:, -1] - np.log(np.exp(best).sum(axis=-1))
        assert np.allclose(logprobs, p.token_logprobs[golden.steps], atol=1e-5)


def test_tolerance_is_the_stated_multiple_of_a_measured_error(golden: load.Golden) -> None:
    error, tolerance = golden.meta["float32_error"], golden.meta["tolerance"]
    assert tolerance["factor"] == TOLERANCE_FACTOR
    for kind in ("logits", "logprobs"):
        assert tolerance[kind] == TOLERANCE_FACTOR * error[kind]
    # A relative error of float32's 2^-24, amplified, but by no more than 2^12 in two layers.
    assert 2**-24 < error["logits"] / golden.meta["logit_std"] < 2**-12


def test_bfloat16_errors_are_recorded_and_plausible(golden: load.Golden) -> None:
    if golden.meta["storage"] != "bfloat16":
        assert "bfloat16_error" not in golden.meta
        return
    for attention in ("sdpa", "eager"):
        error = golden.meta["bfloat16_error"][attention]
        relative = error["logits_rms"] / golden.meta["logit_std"]
        # Where a router's choice flips, whole experts change places.
        assert 2**-9 < relative < (2**-1 if "router" in golden.meta else 2**-4)
        assert error["logits_max"] > error["logits_rms"]
        assert error["prompt_logprobs_max"] > error["prompt_logprobs_rms"] > 0


def test_weights_are_of_the_stated_dtype(golden: load.Golden) -> None:
    dtypes = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
    config = config_of(golden)
    blocks = config["model_type"] == "gpt_oss"  # experts alone are quantized
    for path in golden.folder.glob("model*.safetensors"):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        header.pop("__metadata__")
        for name, entry in header.items():
            router = "moe_statics" in name or name.endswith(".mlp.gate.weight")
            float32 = router and config["model_type"] == "ernie4_5_moe"
            float32 = float32 or name.endswith(("A_log", "expert_bias", "score_correction_bias"))
            expected = "F32" if float32 else dtypes[golden.meta["storage"]]
            if "quantization_config" in config and "_proj.weight" in name and not blocks:
                in_blocks = name.endswith("scale_inv")
                expected = "F32" if in_blocks else "BF16" if "scale" in name else "F8_E4M3"
                if golden.name == "llama_mxfp4":
                    expected = "U8"
            if name.endswith(("_blocks", "_scales")):
                expected = "U8"
            assert entry["dtype"] == expected


def test_rope_tables_follow_the_rules(golden: load.Golden) -> None:
    rules = rules_of(golden)
    layers = list(zip(rules.ropes, rules.windows, strict=True))
    for key, slides in (("rope", False), ("rope_sliding", True)):
        if key not in golden.meta or golden.meta[key]["type"] == "none":
            continue
        several = "rope_sliding" in golden.meta
        rope = next(r for r, window in layers if r and (not several or bool(window) == slides))
        frequencies, factor = reference.inverse_frequencies(rope)
        assert np.allclose(frequencies, golden.meta[key]["inv_freq"], rtol=5e-7, atol=0)
        assert factor == pytest.approx(golden.meta[key]["attention_factor"], rel=1e-12)


def test_numpy_decoder_gives_the_golden_answers(golden: load.Golden) -> None:
    rules = rules_of(golden)
    weights = load.read_checkpoint(golden.folder)
    for p in golden.prompts:
        size = len(p.prompt)
        logits = reference.logits(rules, weights, p.prompt + p.tokens[:-1], size)
        assert logits[size - 1 :].argmax(axis=-1).tolist() == p.tokens
        rows = size - 1 + np.array(golden.steps)
        assert np.abs(logits[rows] - p.logits).max() < golden.logit_tolerance
        logprobs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        given = logprobs[np.arange(size - 1), p.prompt[1:]]
        made = logprobs[np.arange(size - 1, len(logits)), p.tokens]
        assert np.abs(given - p.prompt_logprobs).max(initial=0) < golden.logprob_tolerance
        assert np.abs(made - p.token_logprobs).max() < golden.logprob_tolerance


@pytest.mark.parametrize(("case", "twin"), TWINS, ids=[twin.name for _, twin in TWINS])
def test_twin_has_the_same_weights_and_answers(case: Case, twin: Twin) -> None:
    other, original = load.load_case(twin.name), load.load_case(case.name)
    rules = rules_of(original)
    plain = load.read_checkpoint(original.folder)
    relaid = load.read_checkpoint(other.folder)
    if twin.layout == "paddle":
        assert not set(relaid) & set(plain) - {"lm_head.weight"}
    elif twin.layout == "fused_experts":
        assert len(relaid) < len(plain) * 2 / 3
    else:
        assert not {name for name in relaid if name.startswith("model.")} & set(plain)
    rewritten, plain = (reference.pytorch_layout(rules, weights) for weights in (relaid, plain))
    assert rewritten.keys() == plain.keys()
    assert all(np.array_equal(rewritten[name], plain[name]) for name in plain)
    for ours, theirs in zip(other.prompts, original.prompts, strict=True):
        assert ours.tokens == theirs.tokens
        assert np.array_equal(ours.logits, theirs.logits)


def with_eps(rules: reference.Rules) -> reference.Rules:
    return dataclasses.replace(rules, eps=1e-6 if rules.eps == 1e-5 else 1e-5)


def with_other_pairs(rules: reference.Rules) -> reference.Rules:
    return dataclasses.replace(rules, interleaved=not rules.interleaved)


WITHOUT_ROPE = ("granite_hybrid", "nemotron_h", "nemotron_h_moe")
MISTAKES = [
    *((name, "eps", with_eps) for name in EXPECTED),
    *((name, "rotated pairs", with_other_pairs) for name in EXPECTED if name not in WITHOUT_ROPE),
    *((name, "no q/k norm", with_fields(qk_norm="none")) for name in ("qwen3", "qwen3_window")),
    *(
        (name, "no rope scaling", with_rope(rope_type="default", type="default"))
        for name in ("llama3_rope", "llama_linear", "llama_dynamic", "llama_yarn", "qwen2_yarn")
    ),
    ("llama3_rope", "original length", with_rope_fields(original=512)),
    ("llama3_rope", "blend", with_rope(low_freq_factor=3.99)),
    ("llama_yarn", "truncated range", with_rope(truncate=True)),
    ("llama_yarn", "betas", with_rope(beta_fast=32, beta_slow=1)),
    ("llama_yarn", "attention factor from mscale", with_rope(mscale=None)),
    ("llama_yarn", "attention factor", with_rope(attention_factor=1.0)),
    ("qwen2_yarn", "attention factor", with_rope(attention_factor=1.0)),
    ("qwen2_yarn", "untruncated range", with_rope(truncate=False)),
    ("qwen2_yarn", "original length", with_rope_fields(original=256)),
    *(
        (name, mistake, change)
        for name in ("mistral_window", "qwen2_window", "qwen3_window")
        for mistake, change in WINDOW_MISTAKES
    ),
    ("qwen2_window", "layers", with_reversed_windows),
    ("qwen3_window", "layers", with_reversed_windows),
    ("qwen2", "window used", with_windows(lambda window: 48)),
]


@pytest.mark.parametrize(
    ("name", "mistake", "mutate"), MISTAKES, ids=[f"{m[0]}-{m[1]}" for m in MISTAKES]
)
def test_a_wrong_rule_would_be_seen(name: str, mistake: str, mutate: Change) -> None:
    golden = load.load_case(name)
    assert is_off(golden, mutate(rules_of(golden))), mistake


def test_dynamic_rope_depends_on_the_prompt_length() -> None:
    """Rotating by own position alone, or by the whole length, gives other logits."""
    golden = load.load_case("llama_dynamic")
    rules = rules_of(golden)
    weights = load.read_checkpoint(golden.folder)
    for p in golden.prompts:
        ids = p.prompt + p.tokens[:-1]
        rows = len(p.prompt) - 1 + np.array(golden.steps)
        behind = len(p.prompt) > rules.ropes[0].max_positions
        by_position = np.abs(reference.logits(rules, weights, ids, 1)[rows] - p.logits)
        by_total = np.abs(reference.logits(rules, weights, ids, len(ids))[rows] - p.logits)
        assert (by_position.max() > 10 * golden.logit_tolerance) == behind
        if len(p.prompt) > 1:  # 64 tokens from one alone end exactly at max_positions
            assert by_total.max() > 10 * golden.logit_tolerance

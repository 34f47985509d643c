"""Makes the golden folders beside this file. Needs torch and transformers; see README.md.

python tests/golden/make_golden.py            # all cases
python tests/golden/make_golden.py llama qwen3
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import float4
import float4_blocks
import float8
import numpy as np
import oracle
import routing
import torch
import transformers
import weights
from case_types import (
    LOGIT_STEPS,
    MIN_DISTINCT,
    MIN_GAP,
    MIN_ROUTER_MARGIN,
    NEW_TOKENS,
    PROMPT_LENGTHS,
    TOLERANCE_FACTOR,
    Case,
    Twin,
)
from cases import CASES
from layouts import to_fused_experts, to_paddle, to_wrapped
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = Path(__file__).parent
STEPS = list(LOGIT_STEPS)

MAX_SEEDS = 400
MAX_REDRAWS = 15  # of one prompt


@dataclasses.dataclass(slots=True)
class Answer:
    prompt: list[int]
    tokens: list[int]
    run: oracle.Run  # float32 oracle
    scores: list[np.ndarray]  # by which its routers selected, call by call
    groups: list[np.ndarray]  # likewise, groups of experts

    @property
    def gaps(self) -> np.ndarray:
        best = np.sort(self.run.steps, axis=-1)
        return best[:, -1] - best[:, -2]


@dataclasses.dataclass(slots=True)
class Float32Error:
    """Largest |float32 - float64| of two float32 runs over all positions."""

    logits: float = 0.0
    logprobs: float = 0.0
    router: float = 0.0  # of the scores by which experts are selected


def make(case: Case) -> None:
    folder = ROOT / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # transformers gets the numbers that small floats mean: it runs them itself on GPUs alone.
    plain = {key: value for key, value in case.config.items() if key != "quantization_config"}
    write_json(folder / "config.json", plain)
    write_json(folder / "generation_config.json", case.generation)
    seed, answers, error = find_seed(case, folder)
    meta = describe(case, folder, seed, answers, error)
    write_golden(folder, meta, answers)
    if plain != case.config:
        tensors = small_floats(case).stored(load_file(folder / "model.safetensors"), case.config)
        write_weights(folder, case, tensors)
        write_json(folder / "config.json", case.config)
    for twin in case.twins:
        make_twin(twin, case, folder, meta, answers)
    tolerance = meta["tolerance"]["logits"]
    print(
        f"{case.name}: seed {seed}, smallest gap {meta['min_gap']:.4f}, tolerance {tolerance:.2e}"
    )


def small_floats(case: Case) -> ModuleType:
    """What rounds and stores the weights of a case whose checkpoint comes quantized."""
    quantization = case.config["quantization_config"]
    if quantization["quant_method"] == "mxfp4":
        return float4_blocks
    return float4 if quantization.get("format") == "mxfp4-pack-quantized" else float8


def find_seed(case: Case, folder: Path) -> tuple[int, list[Answer], Float32Error]:
    """Writes the weights of the first seed whose answers are clear and beyond rounding."""
    storage = getattr(torch, case.storage)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).float().eval()
    for seed in range(case.seed, case.seed + MAX_SEEDS):
        weights.fill(model, seed, storage, case.experts)
        if "quantization_config" in case.config:
            small_floats(case).round_model(model, case.config)
        prompts = clear_prompts(model, case, seed)
        if prompts is None:
            continue
        tensors = stored_tensors(model, case, storage)
        if case.mtp:
            tensors |= weights.mtp_block(case.config, seed, storage, case.experts)
        write_weights(folder, case, tensors)
        answers = answer(oracle.load(folder, torch.float32), prompts)
        error = float32_error(folder, answers)
        if min(a.gaps.min() for a in answers) < 2 * TOLERANCE_FACTOR * error.logits:
            continue  # two logits within tolerance could change places
        if margin(case, answers) >= 2 * TOLERANCE_FACTOR * error.router:
            return seed, answers, error
    raise SystemExit(f"{case.name}: none of {MAX_SEEDS} seeds decodes clearly")


def margin(case: Case, answers: list[Answer]) -> float:
    """Of the nearest choice of an expert; infinite without experts."""
    scores = [rows for a in answers for rows in a.scores]
    groups = [rows for a in answers for rows in a.groups]
    return router_margin(case, scores, groups)


def router_margin(case: Case, scores: list[np.ndarray], groups: list[np.ndarray]) -> float:
    if case.experts is None:
        return math.inf
    k, top_groups = routing.experts_per_token(case.config), case.config.get("topk_group", 1)
    return min(routing.margin(scores, k), routing.margin(groups, top_groups))


def clear_prompts(model: torch.nn.Module, case: Case, seed: int) -> list[list[int]] | None:
    """One clear prompt of each length. Each choice of an expert may be a near miss: with experts a
    prompt that isn't clear is drawn anew."""
    prompts = []
    for index, prompt in enumerate(prompts_of(case, seed)):
        draws = np.random.default_rng([seed, 1, index])
        redraws = MAX_REDRAWS if case.experts else 0
        while not is_clear(model, case, prompt):
            if redraws == 0:
                return None
            redraws -= 1
            prompt = draw_prompt(draws, case, len(prompt))
        prompts.append(prompt)
    return prompts


def is_clear(model: torch.nn.Module, case: Case, prompt: list[int]) -> bool:
    """No near tie, no dull repetition, and no end-of-text token among the generated ones."""
    groups: list[np.ndarray] = []
    with oracle.watched_routers(groups) as scores:
        tokens, logits = oracle.greedy(model, prompt, NEW_TOKENS)
    if router_margin(case, scores, groups) < MIN_ROUTER_MARGIN:
        return False
    best = np.sort(logits, axis=-1)
    gap = (best[:, -1] - best[:, -2]).min() / logits.std(axis=-1).mean()
    ends = np.atleast_1d(case.generation["eos_token_id"]).tolist()
    return gap >= MIN_GAP and len(set(tokens)) >= MIN_DISTINCT and not set(ends) & set(tokens)


def prompts_of(case: Case, seed: int) -> list[list[int]]:
    generator = np.random.default_rng([seed, 1])
    return [draw_prompt(generator, case, size) for size in PROMPT_LENGTHS]


def draw_prompt(generator: np.random.Generator, case: Case, size: int) -> list[int]:
    return generator.integers(5, case.config["vocab_size"], size).tolist()


def answer(model: torch.nn.Module, prompts: list[list[int]]) -> list[Answer]:
    answers = []
    for prompt in prompts:
        tokens, logits = oracle.greedy(model, prompt, NEW_TOKENS)
        groups: list[np.ndarray] = []
        with oracle.watched_routers(groups) as scores:
            run = oracle.cached_run(model, prompt, tokens)
        relative = 3e-4 if oracle.keeps_states(model) else 1e-5
        if not np.allclose(run.steps, logits, rtol=0, atol=relative * logits.std()):
            raise SystemExit(f"generate and the run by steps differ: {run.steps - logits}")
        answers.append(Answer(prompt, tokens, run, scores, groups))
    return answers


def describe(
    case: Case, folder: Path, seed: int, answers: list[Answer], error: Float32Error
) -> dict[str, Any]:
    model = oracle.load(folder, torch.float32)
    meta: dict[str, Any] = {
        "about": case.about,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "seed": seed,
        "storage": case.storage,
        "steps": STEPS,
        "min_gap": float(min(a.gaps.min() for a in answers)),
        "logit_std": float(np.mean([a.run.steps.std(axis=-1).mean() for a in answers])),
        **describe_ropes(model),
        "float32_error": {"logits": error.logits, "logprobs": error.logprobs},
        "tolerance": {
            "factor": TOLERANCE_FACTOR,
            "logits": TOLERANCE_FACTOR * error.logits,
            "logprobs": TOLERANCE_FACTOR * error.logprobs,
        },
    }
    if case.experts:
        meta["router"] = describe_router(case, answers, error.router)
    if case.storage == "bfloat16":
        meta["bfloat16_error"] = {
            attention: bfloat16_error(folder, attention, answers) for attention in ("sdpa", "eager")
        }
    return meta


def describe_ropes(model: torch.nn.Module) -> dict[str, Any]:
    """The table of the model; of models with two, the one of full layers and that of windows."""
    oracle.reset_rope(model)
    rope = oracle.rope_of(model)
    if rope is None:
        return {"rope": {"type": "none", "attention_factor": 1.0, "inv_freq": []}}
    if hasattr(rope, "original_inv_freq"):
        return {"rope": describe_rope(rope, "", rope.rope_type)}
    kinds = {"rope": "full_attention", "rope_sliding": "sliding_attention"}
    return {
        key: describe_rope(rope, kind + "_", rope.rope_type[kind]) for key, kind in kinds.items()
    }


def describe_rope(rope: torch.nn.Module, prefix: str, kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "attention_factor": float(getattr(rope, prefix + "attention_scaling")),
        "inv_freq": [float(x) for x in getattr(rope, prefix + "original_inv_freq")],
    }


def describe_router(case: Case, answers: list[Answer], error: float) -> dict[str, Any]:
    k = routing.experts_per_token(case.config)
    scores = [rows for a in answers for rows in a.scores]
    calls_per_answer = NEW_TOKENS  # the prompt, and each token but the last
    layers = len(answers[0].scores) // calls_per_answer
    return {
        "float32_error": error,
        "tolerance": TOLERANCE_FACTOR * error,
        "margin": margin(case, answers),
        **routing.summary(scores, k, layers),
    }


def float32_error(folder: Path, answers: list[Answer]) -> Float32Error:
    default = oracle.load(folder, torch.float32)
    eager = oracle.load(folder, torch.float32, "eager")
    wide = oracle.in_float64(default)
    error = Float32Error()
    for a in answers:
        exact_groups: list[np.ndarray] = []
        eager_groups: list[np.ndarray] = []
        with oracle.float64_everywhere(), oracle.watched_routers(exact_groups) as exact_scores:
            exact = oracle.cached_run(wide, a.prompt, a.tokens)
        with oracle.watched_routers(eager_groups) as eager_scores:
            eager_run = oracle.cached_run(eager, a.prompt, a.tokens)
        exact_scores += exact_groups
        eager_scores += eager_groups
        for run, scores in ((a.run, a.scores + a.groups), (eager_run, eager_scores)):
            for got, want in ((run.prompt, exact.prompt), (run.steps, exact.steps)):
                error.logits = max(error.logits, largest(got - want))
                error.logprobs = max(error.logprobs, largest(log_softmax(got) - log_softmax(want)))
            for got, want in zip(scores, exact_scores, strict=True):
                error.router = max(error.router, largest(got - want))
    return error


def largest(differences: np.ndarray) -> float:
    return float(np.abs(differences).max())


def bfloat16_error(folder: Path, attention: str, answers: list[Answer]) -> dict[str, float]:
    """transformers in bfloat16 against the float32 oracle, same tokens fed to both.

    Over the logits that golden.safetensors holds, and over all prompt log-probabilities.
    """
    model = oracle.load(folder, torch.bfloat16, attention)
    logits, logprobs = [], []
    for a in answers:
        run = oracle.cached_run(model, a.prompt, a.tokens)
        logits.append((run.steps - a.run.steps)[STEPS])
        logprobs.append(prompt_logprobs(a.prompt, run) - prompt_logprobs(a.prompt, a.run))
    errors, differences = np.abs(np.concatenate(logits)), np.abs(np.concatenate(logprobs))
    return {
        "logits_max": float(errors.max()),
        "logits_rms": float(math.sqrt((errors**2).mean())),
        "prompt_logprobs_max": float(differences.max()),
        "prompt_logprobs_rms": float(math.sqrt((differences**2).mean())),
    }


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def prompt_logprobs(prompt: list[int], run: oracle.Run) -> np.ndarray:
    return log_softmax(run.prompt)[np.arange(len(prompt) - 1), prompt[1:]]


def write_golden(folder: Path, meta: dict[str, Any], answers: list[Answer]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for index, a in enumerate(answers):
        arrays[f"logits.{index}"] = a.run.steps[STEPS]
        chosen = log_softmax(a.run.steps)[np.arange(NEW_TOKENS), a.tokens]
        arrays[f"token_logprobs.{index}"] = chosen
        arrays[f"gaps.{index}"] = a.gaps
        if len(a.prompt) > 1:
            arrays[f"prompt_logprobs.{index}"] = prompt_logprobs(a.prompt, a.run)
    tensors = {name: torch.from_numpy(array).float() for name, array in arrays.items()}
    save_file(tensors, folder / "golden.safetensors")
    prompts = [{"prompt": a.prompt, "tokens": a.tokens} for a in answers]
    write_json(folder / "golden.json", {"case": folder.name, **meta, "prompts": prompts})


def make_twin(
    twin: Twin, case: Case, folder: Path, meta: dict[str, Any], answers: list[Answer]
) -> None:
    """The same weights and answers in another layout."""
    to = ROOT / twin.name
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    write_json(to / "config.json", twin.config)
    write_json(to / "generation_config.json", case.generation)
    tensors = load_file(folder / "model.safetensors")
    if twin.layout == "paddle":
        save_file(to_paddle(tensors), to / "model.safetensors", metadata={"format": "pd"})
    elif twin.layout == "wrapped":
        wrapped = to_wrapped(tensors, twin.config)
        save_file(wrapped, to / "model.safetensors", metadata={"format": "pt"})
    else:
        save_file(to_fused_experts(tensors), to / "model.safetensors", metadata={"format": "pt"})
    about = f"the weights and answers of {case.name} in the layout {twin.layout}"
    write_golden(to, {**meta, "about": about, "twin_of": case.name}, answers)


def stored_tensors(
    model: torch.nn.Module, case: Case, storage: torch.dtype
) -> dict[str, torch.Tensor]:
    """What belongs into the file: a tied head is left out, as published."""
    if case.experts is None:
        kind = case.config["model_type"]
        stem = "backbone." if kind == "nemotron_h" else "model."
        state = {
            name.replace("model.", stem, 1): tensor.to(weights.stored_dtype(kind, name, storage))
            for name, tensor in model.state_dict().items()
        }
        if model.config.tie_word_embeddings:
            del state["lm_head.weight"]
        return state
    with tempfile.TemporaryDirectory() as folder:  # saving gives experts their published names
        model.save_pretrained(folder)
        state = load_file(Path(folder) / "model.safetensors")
    if case.experts.correction is None:
        state = {name: value for name, value in state.items() if not weights.is_correction(name)}
    kind = case.config["model_type"]
    return {
        name: value.to(weights.stored_dtype(kind, name, storage)) for name, value in state.items()
    }


def write_weights(folder: Path, case: Case, tensors: dict[str, torch.Tensor]) -> None:
    metadata = {"format": "pt"}
    if case.shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata=metadata)
        return
    names = list(tensors)
    per_shard = math.ceil(len(names) / case.shards)
    weight_map = {}
    for shard in range(case.shards):
        file = f"model-{shard + 1:05}-of-{case.shards:05}.safetensors"
        own = names[shard * per_shard : (shard + 1) * per_shard]
        save_file({name: tensors[name] for name in own}, folder / file, metadata=metadata)
        weight_map |= dict.fromkeys(own, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Indented by one level, number lists kept on one line."""
    lines = [f'  "{key}": {json.dumps(entry)}' for key, entry in value.items()]
    if path.name.endswith("index.json"):
        path.write_text(json.dumps(value, indent=2) + "\n")
    else:
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main(names: list[str]) -> None:
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for case in CASES:
        if not names or case.name in names:
            make(case)


if __name__ == "__main__":
    main(sys.argv[1:])

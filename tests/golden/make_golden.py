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
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import torch
import transformers
import weights
from cases import (
    CASES,
    LOGIT_STEPS,
    MIN_DISTINCT,
    MIN_GAP,
    NEW_TOKENS,
    PROMPT_LENGTHS,
    TOLERANCE_FACTOR,
    Case,
)
from paddle_layout import to_paddle
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = Path(__file__).parent
STEPS = list(LOGIT_STEPS)

MAX_SEEDS = 400


@dataclasses.dataclass(slots=True)
class Answer:
    prompt: list[int]
    tokens: list[int]
    run: oracle.Run  # float32 oracle

    @property
    def gaps(self) -> np.ndarray:
        best = np.sort(self.run.steps, axis=-1)
        return best[:, -1] - best[:, -2]


def make(case: Case) -> None:
    folder = ROOT / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_json(folder / "config.json", case.config)
    write_json(folder / "generation_config.json", case.generation)
    seed = find_seed(case, folder)
    answers = answer(oracle.load(folder, torch.float32), prompts_of(case, seed))
    meta = describe(case, folder, seed, answers)
    if meta["min_gap"] < 2 * meta["tolerance"]["logits"]:
        raise SystemExit(f"{case.name}: two logits within tolerance could change places")
    write_golden(folder, meta, answers)
    if case.paddle_twin:
        make_paddle_twin(case, folder, meta, answers)
    tolerance = meta["tolerance"]["logits"]
    print(
        f"{case.name}: seed {seed}, smallest gap {meta['min_gap']:.4f}, tolerance {tolerance:.2e}"
    )


def find_seed(case: Case, folder: Path) -> int:
    """Writes the weights of the first seed whose answers pass `is_clear`; returns the seed."""
    storage = getattr(torch, case.storage)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).float().eval()
    for seed in range(case.seed, case.seed + MAX_SEEDS):
        weights.fill(model, seed, storage)
        if all(is_clear(model, case, prompt) for prompt in prompts_of(case, seed)):
            write_weights(folder, case, stored_tensors(model, storage))
            return seed
    raise SystemExit(f"{case.name}: none of {MAX_SEEDS} seeds decodes clearly")


def is_clear(model: torch.nn.Module, case: Case, prompt: list[int]) -> bool:
    """No near tie, no dull repetition, and no end-of-text token among the generated ones."""
    tokens, logits = oracle.greedy(model, prompt, NEW_TOKENS)
    best = np.sort(logits, axis=-1)
    gap = (best[:, -1] - best[:, -2]).min() / logits.std(axis=-1).mean()
    ends = np.atleast_1d(case.generation["eos_token_id"]).tolist()
    return gap >= MIN_GAP and len(set(tokens)) >= MIN_DISTINCT and not set(ends) & set(tokens)


def prompts_of(case: Case, seed: int) -> list[list[int]]:
    generator = np.random.default_rng([seed, 1])
    vocabulary = case.config["vocab_size"]
    return [generator.integers(5, vocabulary, size).tolist() for size in PROMPT_LENGTHS]


def answer(model: torch.nn.Module, prompts: list[list[int]]) -> list[Answer]:
    answers = []
    for prompt in prompts:
        tokens, logits = oracle.greedy(model, prompt, NEW_TOKENS)
        run = oracle.cached_run(model, prompt, tokens)
        if not np.allclose(run.steps, logits, rtol=0, atol=1e-5 * logits.std()):
            raise SystemExit(f"generate and the run by steps differ: {run.steps - logits}")
        answers.append(Answer(prompt, tokens, run))
    return answers


def describe(case: Case, folder: Path, seed: int, answers: list[Answer]) -> dict[str, Any]:
    model = oracle.load(folder, torch.float32)
    rope = model.model.rotary_emb
    logit_error, logprob_error = float32_error(folder, answers)
    meta: dict[str, Any] = {
        "about": case.about,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "seed": seed,
        "storage": case.storage,
        "steps": STEPS,
        "min_gap": float(min(a.gaps.min() for a in answers)),
        "logit_std": float(np.mean([a.run.steps.std(axis=-1).mean() for a in answers])),
        "rope": {
            "type": rope.rope_type,
            "attention_factor": float(rope.attention_scaling),
            "inv_freq": [float(x) for x in rope.original_inv_freq],
        },
        "float32_error": {"logits": logit_error, "logprobs": logprob_error},
        "tolerance": {
            "factor": TOLERANCE_FACTOR,
            "logits": TOLERANCE_FACTOR * logit_error,
            "logprobs": TOLERANCE_FACTOR * logprob_error,
        },
    }
    if case.storage == "bfloat16":
        meta["bfloat16_error"] = {
            attention: bfloat16_error(folder, attention, answers) for attention in ("sdpa", "eager")
        }
    return meta


def float32_error(folder: Path, answers: list[Answer]) -> tuple[float, float]:
    """Largest |float32 - float64| over all logits and log-probabilities of two float32 runs."""
    default = oracle.load(folder, torch.float32)
    eager = oracle.load(folder, torch.float32, "eager")
    wide = oracle.in_float64(default)
    logit_error = logprob_error = 0.0
    for a in answers:
        with oracle.float64_everywhere():
            exact = oracle.cached_run(wide, a.prompt, a.tokens)
        for run in (a.run, oracle.cached_run(eager, a.prompt, a.tokens)):
            for got, want in ((run.prompt, exact.prompt), (run.steps, exact.steps)):
                logit_error = max(logit_error, float(np.abs(got - want).max()))
                difference = log_softmax(got) - log_softmax(want)
                logprob_error = max(logprob_error, float(np.abs(difference).max()))
    return logit_error, logprob_error


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


def make_paddle_twin(case: Case, folder: Path, meta: dict[str, Any], answers: list[Answer]) -> None:
    """The same weights and answers in the Paddle layout."""
    name, config = case.paddle_twin or ("", {})
    twin = ROOT / name
    shutil.rmtree(twin, ignore_errors=True)
    twin.mkdir()
    write_json(twin / "config.json", config)
    write_json(twin / "generation_config.json", case.generation)
    model = oracle.load(folder, torch.float32)
    tensors = to_paddle(stored_tensors(model, getattr(torch, case.storage)))
    save_file(tensors, twin / "model.safetensors", metadata={"format": "pd"})
    about = f"the weights and answers of {case.name} in the Paddle layout"
    write_golden(twin, {**meta, "about": about, "twin_of": case.name}, answers)


def stored_tensors(model: torch.nn.Module, storage: torch.dtype) -> dict[str, torch.Tensor]:
    """What belongs into the file: a tied head is left out, as published."""
    state = {name: tensor.to(storage) for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    return state


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

"""Writes choices.json: what bfloat16 does to the choices of transformers' routers.

    python tests/golden/make_choices.py

Over all rows of the golden texts of each case with experts and 16-bit weights, prompts and
generated tokens alike, the bfloat16 run (sdpa) against the float32 one, the same tokens fed to
both. README.md says what the numbers mean.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import oracle
import torch
from routing import experts_per_token

ROOT = Path(__file__).parent


def run_rows(
    model: torch.nn.Module, prompt: list[int], tokens: list[int]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits of all rows, and the scores [rows, experts] of each layer with experts."""
    with oracle.watched_routers() as calls:
        run = oracle.cached_run(model, prompt, tokens)
    rows = len(prompt) + len(tokens) - 1
    layers = sum(len(call) for call in calls) // rows
    scores = [np.concatenate(calls[layer::layers]) for layer in range(layers)]
    return np.concatenate([run.prompt, run.steps[1:]]), scores


def chosen(scores: np.ndarray, k: int) -> np.ndarray:
    return np.sort(np.argsort(-scores, axis=-1, kind="stable")[:, :k], axis=-1)


def measure(folder: Path, prompts: list[dict]) -> dict[str, float]:
    k = experts_per_token(json.loads((folder / "config.json").read_text()))
    models = [oracle.load(folder, dtype) for dtype in (torch.float32, torch.bfloat16)]
    errors, squares, moved, rows = [], [], 0, 0
    for text in prompts:
        (exact, exact_scores), (rough, rough_scores) = (
            run_rows(model, text["prompt"], text["tokens"]) for model in models
        )
        other = np.zeros(len(exact), bool)
        for a, b in zip(exact_scores, rough_scores, strict=True):
            differs = (chosen(a, k) != chosen(b, k)).any(-1)
            errors.append(np.abs(a - b).max(-1))
            moved += int(differs.sum())
            other |= differs
        squares.append(((rough - exact)[~other] ** 2).mean(-1))
        rows += len(exact)
    return {
        "rows": rows,
        "other_choices": moved,
        "same_rows": sum(map(len, squares)),
        "same_rows_rms": float(np.sqrt(np.concatenate(squares).mean())),
        "score_error": float(np.median(np.concatenate(errors))),
    }


def main() -> None:
    out = {}
    for file in sorted(ROOT.glob("*/golden.json")):
        meta = json.loads(file.read_text())
        # transformers doesn't run small floats everywhere.
        quantized = "quantization_config" in json.loads((file.parent / "config.json").read_text())
        routed = "router" in meta and "bfloat16_error" in meta
        if routed and not quantized and "twin_of" not in meta:
            out[file.parent.name] = measure(file.parent, meta["prompts"])
    (ROOT / "choices.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

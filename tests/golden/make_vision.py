"""Writes goldens of models with vision towers. Needs torch and transformers; see README.md.

python tests/golden/make_vision.py            # all cases of vision_cases.py
python tests/golden/make_vision.py qwen2_vl

Into vision/CASE go config.json, model.safetensors (bfloat16), vision.json (prompts, positions,
greedy tokens, tolerances) and vision.safetensors (patches, the tower's rows, some logits).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import layouts
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
    TOLERANCE_FACTOR,
)
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText
from vision_cases import (
    CASES,
    END,
    FIRST_TEXT,
    IMAGE_PAD,
    START,
    TEXT_END,
    VIDEO_PAD,
    Item,
    VisionCase,
)
from vision_inputs import item_inputs, merge_of, modalities, own_rows

ROOT = Path(__file__).parent / "vision"
MAX_SEEDS = 400


@dataclasses.dataclass(slots=True)
class Prompt:
    tokens: list[int]
    runs: list[dict[str, int]]  # rows of items: position, count, item, first_row
    axes: np.ndarray  # [3, tokens]
    next: int  # the position of the first generated token


class Positions:
    """Text continues one above the largest position so far."""

    def __init__(self) -> None:
        self.axes: list[np.ndarray] = []
        self.next = 0

    def text(self, count: int) -> None:
        self.axes.append(np.tile(np.arange(self.next, self.next + count), (3, 1)))
        self.next += count

    def rows(self, times: list[int], height: int, width: int) -> None:
        grids = np.meshgrid(np.array(times), np.arange(height), np.arange(width), indexing="ij")
        self.axes.append(np.stack([axis.ravel() for axis in grids]) + self.next)
        self.next += max(times[-1] + 1, height, width)


def placeholder(item: Item) -> int:
    return VIDEO_PAD if item.video else IMAGE_PAD


def lay_out(case: VisionCase, pieces: tuple[int | str, ...], draws: np.random.Generator) -> Prompt:
    tokens: list[int] = []
    runs: list[dict[str, int]] = []
    positions = Positions()

    def text(ids: list[int]) -> None:
        tokens.extend(ids)
        positions.text(len(ids))

    def rows(index: int, first: int, count: int) -> None:
        runs.append({"position": len(tokens), "count": count, "item": index, "first_row": first})
        tokens.extend([placeholder(case.items[index])] * count)

    for piece in pieces:
        if isinstance(piece, int):
            text(draws.integers(FIRST_TEXT, TEXT_END, piece).tolist())
            continue
        index = int(piece)
        item, merge = case.items[index], merge_of(case)
        grids, height, width = item.grid[0], item.grid[1] // merge, item.grid[2] // merge
        area = height * width
        grids //= 2 if case.pairs and item.video else 1
        if case.axes == 1 or case.apart:
            for grid in range(grids):
                text([START])
                rows(index, grid * area, area)
                if case.axes == 1:
                    positions.text(area)
                else:
                    positions.rows([0], height, width)
                text([END])
            continue
        text([START])
        rows(index, 0, grids * area)
        positions.rows([int(grid * item.step) for grid in range(grids)], height, width)
        text([END])
    return Prompt(tokens, runs, np.concatenate(positions.axes, axis=1), positions.next)


def model_inputs(
    model: torch.nn.Module, case: VisionCase, prompt: Prompt, patches: list[torch.Tensor]
) -> dict[str, Any]:
    """Everything of the call that reads the prompt."""
    used = list(dict.fromkeys(run["item"] for run in prompt.runs))
    inputs = item_inputs(case, [(case.items[i], patches[i]) for i in used])
    ids = torch.tensor([prompt.tokens])
    positions = torch.from_numpy(prompt.axes)[:, None]
    if case.axes == 1:
        positions = positions[0]
    elif agrees(case, prompt):
        check_positions(model, ids, positions, inputs)
    return {"input_ids": ids, "position_ids": positions, **modalities(case, ids), **inputs}


def agrees(case: VisionCase, prompt: Prompt) -> bool:
    """Whether transformers has the same positions: behind a clip it goes back to where a single
    grid would end."""
    for run in prompt.runs:
        item = case.items[run["item"]]
        grids = item.grid[0] // 2 if case.pairs and item.video else item.grid[0]
        last = 0 if case.apart else int((grids - 1) * item.step)
        if last >= max(item.grid[1:]) // merge_of(case):
            return False
    return True


def check_positions(
    model: torch.nn.Module, ids: torch.Tensor, ours: torch.Tensor, inputs: dict[str, Any]
) -> None:
    types = (ids == IMAGE_PAD).int() + 2 * (ids == VIDEO_PAD).int()
    known = {
        key: value
        for key, value in inputs.items()
        if key in ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")
    }
    theirs, _ = model.model.get_rope_index(ids, mm_token_type_ids=types, **known)
    if not torch.equal(theirs, ours):
        raise SystemExit(f"other positions than transformers': {theirs} {ours}")


@torch.no_grad()
def run(
    model: torch.nn.Module,
    case: VisionCase,
    prompt: Prompt,
    patches: list[torch.Tensor],
    tokens: list[int] | None = None,
) -> tuple[list[int], np.ndarray]:
    """The greedy continuation (or the given one), and the logits that choose it."""
    result = model(**model_inputs(model, case, prompt, patches), use_cache=True)
    chosen: list[int] = []
    logits = []
    for step in range(NEW_TOKENS):
        logits.append(result.logits[0, -1].double().numpy())
        chosen.append(int(logits[-1].argmax()) if tokens is None else tokens[step])
        shape = (1, 1) if case.axes == 1 else (3, 1, 1)
        ids = torch.tensor([[chosen[-1]]])
        result = model(
            input_ids=ids,
            position_ids=torch.full(shape, prompt.next + step),
            past_key_values=result.past_key_values,
            use_cache=True,
            **modalities(case, ids),
        )
    return chosen, np.stack(logits)


@torch.no_grad()
def tower_rows(
    model: torch.nn.Module, case: VisionCase, patches: list[torch.Tensor]
) -> list[np.ndarray]:
    """[1 + added, rows, H] of each item."""
    return [
        own_rows(model, case, item, own).double().numpy()
        for item, own in zip(case.items, patches, strict=True)
    ]


def load(folder: Path, dtype: torch.dtype, variant: str = "sdpa") -> torch.nn.Module:
    model = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=dtype, attn_implementation=variant
    )
    if variant == "eager":
        oracle.use_eager_experts(model)
    return model.eval()


@contextlib.contextmanager
def in_float64(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """A copy all of whose steps are float64; frequencies of rope stay float32's."""
    wide = copy.deepcopy(model).double()
    oracle.use_eager_experts(wide)
    with oracle.float64_everywhere():
        yield wide


def draw_patches(case: VisionCase, seed: int) -> list[torch.Tensor]:
    vision = case.config["vision_config"]
    values = 3 * vision.get("temporal_patch_size", 1) * vision["patch_size"] ** 2
    draws = np.random.default_rng([seed, 2])
    return [
        torch.from_numpy(draws.standard_normal((int(np.prod(i.grid)), values)).astype(np.float32))
        for i in case.items
    ]


def largest(pairs: Iterator[tuple[np.ndarray, np.ndarray]]) -> float:
    return max(float(np.abs(got - want).max()) for got, want in pairs)


def make(case: VisionCase) -> None:
    folder = ROOT / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(case.config, indent=1) + "\n")
    for seed in range(case.seed, case.seed + MAX_SEEDS):
        if try_seed(case, folder, seed):
            write_twins(case)
            return
    raise SystemExit(f"{case.name}: none of {MAX_SEEDS} seeds decodes clearly")


def experts_per_token(case: VisionCase) -> int:
    return routing.experts_per_token(case.config["text_config"])


def published(case: VisionCase, name: str, value: torch.Tensor) -> torch.Tensor:
    """As makers store it: experts in one tensor have their inputs first."""
    fused = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
    value = value.transpose(1, 2).contiguous() if fused else value.contiguous()
    return value.to(weights.stored_dtype(case.config["model_type"], name, torch.bfloat16))


def write_twins(case: VisionCase) -> None:
    tensors = load_file(ROOT / case.name / "model.safetensors")
    for twin in case.twins:
        folder = ROOT / twin.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(twin.config, indent=1) + "\n")
        (folder / "vision.json").write_text(json.dumps({"answers_of": case.name}) + "\n")
        save_file(
            layouts.to_ernie_vl(tensors, twin.layout == "paddle"),
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )


def write_weights(case: VisionCase, folder: Path, seed: int) -> None:
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_config(config).float().eval()
    weights.fill(model, seed, torch.bfloat16, case.experts)
    with tempfile.TemporaryDirectory() as saved:  # with the published names
        model.save_pretrained(saved)
        state = load_file(Path(saved) / "model.safetensors")
    tensors = {name: published(case, name, value) for name, value in state.items()}
    if case.config["model_type"] == "qwen3_5_moe":
        tensors = layouts.to_fused_experts(tensors)
    if case.config["model_type"] == "gemma3":
        tensors = layouts.to_nested_siglip(tensors)
    if case.mtp:
        tensors |= weights.mtp_block(case.config["text_config"], seed, torch.bfloat16)
    save_file(
        tensors,
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def try_seed(case: VisionCase, folder: Path, seed: int) -> bool:
    write_weights(case, folder, seed)
    draws = np.random.default_rng([seed, 1])
    prompts = [lay_out(case, pieces, draws) for pieces in case.prompts]
    patches = draw_patches(case, seed)
    model = load(folder, torch.float32)
    with oracle.watched_routers() as scores:
        answers = [run(model, case, prompt, patches) for prompt in prompts]
    if scores and routing.margin(scores, experts_per_token(case)) < MIN_ROUTER_MARGIN:
        return False
    for tokens, logits in answers:
        best = np.sort(logits, axis=-1)
        gap = (best[:, -1] - best[:, -2]).min() / logits.std(axis=-1).mean()
        if gap < MIN_GAP or len(set(tokens)) < MIN_DISTINCT:
            return False
    rows = tower_rows(model, case, patches)
    row_error = logit_error = 0.0
    with in_float64(model) as wide:
        wide_patches = [own.double() for own in patches]
        exact_rows = tower_rows(wide, case, wide_patches)
        exact = [
            run(wide, case, prompt, wide_patches, tokens)[1]
            for prompt, (tokens, _) in zip(prompts, answers, strict=True)
        ]
    for variant in ("sdpa", "eager"):
        own = load(folder, torch.float32, variant)
        got = tower_rows(own, case, patches)
        row_error = max(row_error, largest(zip(got, exact_rows, strict=True)))
        for prompt, (tokens, _), want in zip(prompts, answers, exact, strict=True):
            logits = run(own, case, prompt, patches, tokens)[1]
            logit_error = max(logit_error, float(np.abs(logits - want).max()))
    smallest = min(np.diff(np.sort(logits, axis=-1)[:, -2:]).min() for _, logits in answers)
    if smallest < 2 * TOLERANCE_FACTOR * logit_error:
        return False
    meta = {
        "case": case.name,
        "about": case.about,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "seed": seed,
        "float32_error": {"rows": row_error, "logits": logit_error},
        "tolerance": {
            "rows": TOLERANCE_FACTOR * row_error,
            "logits": TOLERANCE_FACTOR * logit_error,
        },
        "bfloat16_error": bfloat16_error(case, folder, patches, rows),
        "steps": list(LOGIT_STEPS),
    }
    write(case, folder, meta, prompts, answers, patches, rows)
    print(f"{case.name}: seed {seed}, smallest gap {smallest:.4f}, {meta['tolerance']}")
    return True


def bfloat16_error(
    case: VisionCase, folder: Path, patches: list[torch.Tensor], rows: list[np.ndarray]
) -> dict[str, float]:
    """transformers' tower in bfloat16 against its float32 one: the root mean square of its default
    variant, and the larger of the two variants' largest errors."""
    errors = {}
    for variant in ("sdpa", "eager"):
        model = load(folder, torch.bfloat16, variant)
        got = tower_rows(model, case, [own.to(torch.bfloat16) for own in patches])
        pairs = zip(got, rows, strict=True)
        errors[variant] = np.concatenate([np.abs(own - want).ravel() for own, want in pairs])
    return {
        "rows_max": max(float(error.max()) for error in errors.values()),
        "rows_rms": float(np.sqrt((errors["sdpa"] ** 2).mean())),
    }


def write(
    case: VisionCase,
    folder: Path,
    meta: dict[str, Any],
    prompts: list[Prompt],
    answers: list[tuple[list[int], np.ndarray]],
    patches: list[torch.Tensor],
    rows: list[np.ndarray],
) -> None:
    arrays: dict[str, np.ndarray] = {}
    for index, (own, given) in enumerate(zip(patches, rows, strict=True)):
        arrays[f"patches.{index}"] = own.numpy()
        arrays[f"rows.{index}"] = given
    entries = []
    for index, (prompt, (tokens, logits)) in enumerate(zip(prompts, answers, strict=True)):
        arrays[f"logits.{index}"] = logits[list(LOGIT_STEPS)]
        entries.append(
            {
                "prompt": prompt.tokens,
                "runs": prompt.runs,
                "positions": prompt.axes.tolist(),
                "next": prompt.next,
                "tokens": tokens,
            }
        )
    items = [describe(item) for item in case.items]
    save_file(
        {name: torch.from_numpy(array).float().contiguous() for name, array in arrays.items()},
        folder / "vision.safetensors",
    )
    lines = [f'  "{key}": {json.dumps(entry)}' for key, entry in meta.items()]
    for key, values in (("items", items), ("prompts", entries)):
        listed = ",\n".join(f"    {json.dumps(entry)}" for entry in values)
        lines.append(f'  "{key}": [\n{listed}\n  ]')
    (folder / "vision.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def describe(item: Item) -> dict[str, Any]:
    return {"grid": list(item.grid), "video": item.video}


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

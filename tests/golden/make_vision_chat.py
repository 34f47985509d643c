"""Writes vision/chat.json: what transformers answers to vision_conversations.py, in float32.

Needs torch and transformers, and the models that make_vision.py has written.

Patches are made here, by numpy, from the formulas of the makers' processors.
"""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import torch
import transformers
from case_types import MIN_GAP, NEW_TOKENS
from make_vision import ROOT, Positions, Prompt, load, placeholder, run
from numpy.typing import NDArray
from vision_cases import CASES, Item, VisionCase
from vision_conversations import (
    CONVERSATIONS,
    FPS,
    Piece,
    Words,
    is_clip,
    pixels,
    rendered,
    tokenizer,
    words_of,
)

CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
HALVES = ([0.5] * 3, [0.5] * 3)


def patches(case: VisionCase, own: NDArray[np.uint8]) -> tuple[torch.Tensor, tuple[int, int, int]]:
    """float32 rows in the order of merged squares, and their grid."""
    vision = case.config["vision_config"]
    side, merge = (vision[name] for name in ("patch_size", "spatial_merge_size"))
    pair = vision.get("temporal_patch_size", 1)
    mean, std = HALVES if case.name.startswith("qwen3") else CLIP
    frames = own if own.ndim == 4 else np.repeat(own[None], pair, axis=0)
    if own.ndim == 4:  # pairs of frames become one, in the tower or behind it
        frames = np.concatenate([frames, np.repeat(frames[-1:], len(frames) % 2, axis=0)])
    shift, scale = (np.array(values, np.float32) * np.float32(255) for values in (mean, std))
    values = ((frames.astype(np.float32) - shift) / scale).transpose(0, 3, 1, 2)
    t, h, w = len(frames) // pair, frames.shape[1] // side, frames.shape[2] // side
    grid = values.reshape(t, pair, 3, h // merge, merge, side, w // merge, merge, side)
    rows = grid.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(t * h * w, -1)
    return torch.from_numpy(np.ascontiguousarray(rows)), (t, h, w)


def laid_out(case: VisionCase, text: str, items: list[Item], words: Words) -> Prompt:
    """With the ids that transformers has for rows of images and of clips."""
    letters = tokenizer(words)
    merge = case.config["vision_config"]["spatial_merge_size"]
    tokens: list[int] = []
    runs: list[dict[str, int]] = []
    positions = Positions()
    number = 0
    for piece in re.split("|".join(f"({re.escape(mark)})" for mark in words.marks), text):
        if piece is None:
            continue
        if piece not in words.marks:
            ids = letters.encode(piece, add_special_tokens=False).ids
            tokens += ids
            positions.text(len(ids))
            continue
        item = items[number]
        t, h, w = item.grid[0], item.grid[1] // merge, item.grid[2] // merge
        t //= 2 if case.pairs and item.video else 1
        runs.append({"position": len(tokens), "count": t * h * w, "item": number, "first_row": 0})
        tokens += [placeholder(item)] * (t * h * w)
        positions.rows([int(grid * item.step) for grid in range(t)], h, w)
        number += 1
    return Prompt(tokens, runs, np.concatenate(positions.axes, axis=1), positions.next)


def answer(case: VisionCase, model: torch.nn.Module, pieces: list[Piece]) -> dict[str, object]:
    rate = case.config["vision_config"].get("tokens_per_second")
    items, rows = [], []
    for piece in pieces:
        if not isinstance(piece, str):
            own, grid = patches(case, pixels(piece))
            step = rate * 2 / FPS if rate and is_clip(piece) else 1.0
            items.append(Item(grid, video=is_clip(piece), step=step))
            rows.append(own)
    shown = dataclasses.replace(case, items=tuple(items))
    words = words_of(case.name)
    prompt = laid_out(shown, rendered(pieces, words), items, words)
    tokens, logits = run(model, shown, prompt, rows)
    best = np.sort(logits, axis=-1)
    gap = float((best[:, -1] - best[:, -2]).min() / logits.std(axis=-1).mean())
    if gap < MIN_GAP:
        raise SystemExit(f"{case.name} {pieces}: a gap of {gap}; ask something else")
    ids = list(prompt.tokens)
    for own in prompt.runs:  # what the family's prompts have there
        mark = list(words.marks)[int(items[own["item"]].video)]
        ids[own["position"] : own["position"] + own["count"]] = [words.marks[mark]] * own["count"]
    return {"prompt": ids, "tokens": tokens}


def main() -> None:
    transformers.utils.logging.set_verbosity_error()
    lines = []
    for case in CASES:
        if case.name in CONVERSATIONS:
            model = load(ROOT / case.name, torch.float32)
            answers = [answer(case, model, pieces) for pieces in CONVERSATIONS[case.name]]
            listed = ",\n".join(f"  {json.dumps(entry)}" for entry in answers)
            lines.append(f' "{case.name}": [\n{listed}\n ]')
            print(case.name, len(answers), "answers of", NEW_TOKENS, "tokens")
    (ROOT / "chat.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

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
    is_tiled,
    pixels,
    rendered,
    tokenizer,
    words_of,
)
from vision_inputs import merge_of

CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
HALVES = ([0.5] * 3, [0.5] * 3)


def patches(case: VisionCase, own: NDArray[np.uint8]) -> tuple[torch.Tensor, tuple[int, int, int]]:
    """float32 rows in the order of merged squares, and their grid."""
    vision = case.config["vision_config"]
    side, pair = vision["patch_size"], vision.get("temporal_patch_size", 1)
    merge = 1 if is_tiled(case.name) else merge_of(case)  # of tiles, patches come row by row
    mean, std = HALVES if case.name.startswith(("qwen3", "smolvlm", "gemma")) else CLIP
    frames = own if own.ndim == 4 else np.repeat(own[None], pair, axis=0)
    together = 2 if case.pairs and own.ndim == 4 else pair  # frames that become one, in the end
    frames = np.concatenate([frames, np.repeat(frames[-1:], -len(frames) % together, axis=0)])
    shift, scale = (np.array(values, np.float32) * np.float32(255) for values in (mean, std))
    values = ((frames.astype(np.float32) - shift) / scale).transpose(0, 3, 1, 2)
    t, h, w = len(frames) // pair, frames.shape[1] // side, frames.shape[2] // side
    grid = values.reshape(t, pair, 3, h // merge, merge, side, w // merge, merge, side)
    rows = grid.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(t * h * w, -1)
    return torch.from_numpy(np.ascontiguousarray(rows)), (t, h, w)


def shown(case: VisionCase, item: Item) -> list[str | tuple[int, int]]:
    """What takes the place of an item's mark: texts, and which of its grids, how many."""
    if is_tiled(case.name):
        around = "<fake_token_around_image>"
        if not item.video:
            return [f"{around}<global-img>", (0, 1), around]
        assert item.grid[0] == 3
        # Three frames at two a second: 0, 0.5 and 1 s into 1.5 s.
        out: list[str | tuple[int, int]] = [
            "You are provided the following series of three frames from a 0:00:01 [H:MM:SS] "
            "video.\n"
        ]
        for frame, time in enumerate(("00:00", "00:00", "00:01")):
            out += [f"\nFrame from {time}:{around}<global-img>", (frame, 1), around]
        return [*out, "\n\n"]
    if case.name.startswith("gemma"):
        return ["\n\n<start_of_image>", (0, 1), "<end_of_image>\n\n"]
    if item.video and case.apart:
        out = []
        for grid in range(item.grid[0]):
            seconds = (2 * grid + 0.5) / FPS  # the middle of a pair of frames
            out += [f"<{seconds:.1f} seconds><|vision_start|>", (grid, 1), "<|vision_end|>"]
        return out
    return [(0, item.grid[0] // (2 if case.pairs and item.video else 1))]


def marks(case: VisionCase, words: Words) -> re.Pattern[str]:
    """Of items in a rendered text: what their rows and the texts among these replace."""
    image, clip = words.marks
    if case.apart:
        clip = words.shown[1]
    return re.compile(f"({re.escape(image)}|{re.escape(clip)})")


def laid_out(case: VisionCase, text: str, items: list[Item], words: Words) -> Prompt:
    """With the ids that transformers has for rows of images and of clips."""
    letters = tokenizer(words)
    merge = merge_of(case)
    tokens: list[int] = []
    runs: list[dict[str, int]] = []
    positions = Positions()
    number = 0
    for place, piece in enumerate(marks(case, words).split(text)):
        if place % 2 == 0:
            parts: list[str | tuple[int, int]] = [piece]
        else:
            parts = shown(case, items[number])
        for part in parts:
            if isinstance(part, str):
                ids = letters.encode(part, add_special_tokens=False).ids
                tokens += ids
                positions.text(len(ids))
                continue
            item, (first, count) = items[number], part
            h, w = item.grid[1] // merge, item.grid[2] // merge
            runs.append(
                {
                    "position": len(tokens),
                    "count": count * h * w,
                    "item": number,
                    "first_row": first * h * w,
                }
            )
            tile = dataclasses.replace(item, video=item.video and not is_tiled(case.name))
            tokens += [placeholder(tile)] * (count * h * w)
            if case.axes == 1:
                positions.text(count * h * w)
            else:
                positions.rows([int(grid * item.step) for grid in range(count)], h, w)
        number += place % 2
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
    asked = dataclasses.replace(case, items=tuple(items))
    words = words_of(case.name)
    prompt = laid_out(asked, rendered(pieces, words), items, words)
    tokens, logits = run(model, asked, prompt, rows)
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

"""Writes what the MTP blocks of golden checkpoints guess. Needs torch and transformers.

python tests/golden/make_mtp.py

transformers drops the tensors, so the block is put together here, from its decoder layer and by the
formulas of README.md, "Guesses". Into each folder of CASES go mtp.json (tokens; the argmax at every
position, -1 where two logits within tolerance could change places) and mtp.safetensors (some rows
of logits).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import oracle
import torch
from case_types import TOLERANCE_FACTOR
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).parent
CASES = {"ernie4_5_moe": ("ernie4_5_moe_paddle",)}  # and the twins with the same weights
CHAIN = 4  # guesses behind the last known token


class Block(torch.nn.Module):
    """The tensors mtp_* of a checkpoint in the PyTorch layout."""

    def __init__(self, model: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        config = model.config
        layer_class, norm_class = type(model.model.layers[0]), type(model.model.norm)
        self.layer = layer_class(config, 0)  # a dense one, as the config's first is
        self.embedding_norm = norm_class(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = norm_class(config.hidden_size, config.rms_norm_eps)
        self.join = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        parts = {
            "model.mtp_block.0.": self.layer,
            "model.mtp_emb_norm.0.": self.embedding_norm,
            "model.mtp_hidden_norm.0.": self.hidden_norm,
            "model.mtp_linear_proj.0.": self.join,
        }
        for prefix, module in parts.items():
            own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            module.load_state_dict({name: value.float() for name, value in own.items()})
        self.eval()


@torch.no_grad()
def normed_rows(
    model: torch.nn.Module, block: Block, hidden: torch.Tensor, next_tokens: list[int]
) -> torch.Tensor:
    """[positions, H] behind the final norm. Row p of `hidden` is the model's at position p, behind
    its final norm, and next_tokens[p] the token at p + 1."""
    embedded = model.model.embed_tokens(torch.tensor(next_tokens))
    joined = torch.cat([block.embedding_norm(embedded), block.hidden_norm(hidden)], dim=-1)
    rows = block.join(joined)[None]
    count = rows.shape[1]
    positions = torch.arange(count)[None]
    mask = torch.full((count, count), -torch.inf, dtype=rows.dtype).triu(1)[None, None]
    out = block.layer(
        rows,
        attention_mask=mask,
        position_embeddings=model.model.rotary_emb(rows, positions),
        position_ids=positions,
    )
    out = out[0] if isinstance(out, tuple) else out
    return model.model.norm(out)[0]


@torch.no_grad()
def run(
    model: torch.nn.Module, block: Block, tokens: list[int], chain: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Logits of all positions but the last, of CHAIN - 1 guesses more, and the guesses (or those of
    `chain`, for a run in another precision to follow)."""
    hidden = model.model(torch.tensor([tokens])).last_hidden_state[0]
    known, guesses, more = hidden[:-1], [], []
    next_tokens = tokens[1:]
    rows = normed_rows(model, block, known, next_tokens)
    logits = model.lm_head(rows).double().numpy()
    last = logits[-1]
    for step in range(CHAIN):
        guesses.append(int(last.argmax()) if chain is None else chain[step])
        if step + 1 == CHAIN:
            break
        known = torch.cat([known, rows[-1:]])
        next_tokens = [*next_tokens, guesses[-1]]
        rows = normed_rows(model, block, known, next_tokens)
        last = model.lm_head(rows[-1:]).double().numpy()[0]
        more.append(last)
    return logits, np.stack(more), guesses


def lead(logits: np.ndarray) -> np.ndarray:
    """Of the best over the second best, row by row."""
    best_two = np.sort(logits, axis=-1)[:, -2:]
    return best_two[:, 1] - best_two[:, 0]


def make(name: str, twins: tuple[str, ...]) -> None:
    folder = ROOT / name
    model = oracle.load(folder, torch.float32)
    block = Block(model, load_file(folder / "model.safetensors"))
    wide, wide_block = (
        oracle.in_float64(model),
        Block(model, load_file(folder / "model.safetensors")),
    )
    wide_block.double()
    golden = json.loads((folder / "golden.json").read_text())
    arrays: dict[str, torch.Tensor] = {}
    cases, error, gap = [], 0.0, np.inf
    gaps = []
    for index, case in enumerate(golden["prompts"]):
        tokens = case["prompt"] + case["tokens"]
        logits, more, guesses = run(model, block, tokens)
        with oracle.float64_everywhere():
            exact, exact_more, _ = run(wide, wide_block, tokens, guesses)
        error = max(error, np.abs(logits - exact).max(), np.abs(more - exact_more).max())
        gaps.append(lead(logits))
        gap = min(gap, gaps[-1][-1], lead(more).min())
        # The last one is what the chain begins with.
        rows = sorted({0, len(case["prompt"]) - 1, len(tokens) - 2})
        arrays[f"logits.{index}"] = torch.from_numpy(logits[rows]).float()
        arrays[f"chain.{index}"] = torch.from_numpy(more).float()
        best = logits.argmax(axis=-1).tolist()
        cases.append({"tokens": tokens, "rows": rows, "argmax": best, "guesses": guesses})
    least = 2 * TOLERANCE_FACTOR * error
    for case, leads in zip(cases, gaps, strict=True):
        unclear = np.flatnonzero(leads < least).tolist()
        case["argmax"] = [-1 if i in unclear else best for i, best in enumerate(case["argmax"])]
    if gap < least:
        raise SystemExit(f"{name}: two logits within tolerance ({gap}) could change places")
    meta = {
        "float32_error": float(error),
        "tolerance": TOLERANCE_FACTOR * float(error),
        "sequences": cases,
    }
    lines = [f'  "{key}": {json.dumps(entry)}' for key, entry in meta.items()]
    for each in (name, *twins):
        (ROOT / each / "mtp.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        save_file(arrays, ROOT / each / "mtp.safetensors")
    print(f"{name}: tolerance {meta['tolerance']:.2e}")


if __name__ == "__main__":
    for case, twins in CASES.items():
        make(case, twins)

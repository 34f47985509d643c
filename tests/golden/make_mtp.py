"""Writes what the MTP blocks of golden checkpoints guess. Needs torch and transformers.

python tests/golden/make_mtp.py            # all cases
python tests/golden/make_mtp.py glm4_moe

transformers reads the tensors of few families (the script compares with it there), so the block is
put together here, from its decoder layer and by the formulas of README.md, "Guesses". Into each
folder of GUESSING go mtp.json (tokens; the argmax at every position, -1 where two logits within
tolerance could change places) and mtp.safetensors (some rows of logits).
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import torch
from case_types import TOLERANCE_FACTOR
from cases import CASES
from layouts import to_fused_experts
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import MtpModel
from weights import WITH_LAYER_BEHIND

ROOT = Path(__file__).parent
# Those with a block, and the twins with the same weights.
GUESSING = {case.name: [twin.name for twin in case.twins] for case in CASES if case.mtp}
CHAIN = 4  # guesses behind the last known token


class Block(torch.nn.Module):
    """The tensors of a checkpoint's block in the PyTorch layout."""

    def __init__(self, model: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        config = model.config
        norm_class = type(model.model.norm)
        self.layer = type(model.model.layers[0])(layer_config(config), 0)
        self.embedding_norm = norm_class(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = norm_class(config.hidden_size, config.rms_norm_eps)
        self.join = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        prefixes = parts_of(config)
        self.final_norm = None  # the model's
        if len(prefixes) > len([*self.children()]):
            self.final_norm = norm_class(config.hidden_size, config.rms_norm_eps)
        parts = [*zip(prefixes, self.children(), strict=True)]
        for prefix, module in reversed(parts):  # the layer's may be that of all
            own = {
                k.removeprefix(prefix): tensors.pop(k) for k in [*tensors] if k.startswith(prefix)
            }
            own = to_fused_experts(own)
            module.load_state_dict({name: value.float() for name, value in own.items()})
        self.eval()


def layer_config(config: Any) -> Any:
    """With which layer 0 is the block's."""
    out = copy.deepcopy(config)
    out._experts_implementation = "eager"
    if config.model_type in WITH_LAYER_BEHIND:
        out.first_k_dense_replace = 0
        out.mlp_layer_types = ["sparse"]
    elif config.model_type != "ernie4_5_moe":  # whose first is a dense one, too
        out.layer_types = ["full_attention"]
        out.mlp_only_layers = []
    return out


def parts_of(config: Any) -> tuple[str, ...]:
    """Where the block's parts stand."""
    if config.model_type == "ernie4_5_moe":
        return (
            "model.mtp_block.0.",
            "model.mtp_emb_norm.0.",
            "model.mtp_hidden_norm.0.",
            "model.mtp_linear_proj.0.",
        )
    if config.model_type in WITH_LAYER_BEHIND:
        stem = f"model.layers.{config.num_hidden_layers}."
        names = ("", "enorm.", "hnorm.", "eh_proj.", "shared_head.norm.")
        return tuple(stem + name for name in names)
    names = ("layers.0.", "pre_fc_norm_embedding.", "pre_fc_norm_hidden.", "fc.", "norm.")
    return tuple("mtp." + name for name in names)


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
    return (block.final_norm or model.model.norm)(out)[0]


@torch.no_grad()
def hidden_rows(model: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    """[positions, H] behind the final norm; where layers keep states, one by one (cached_run)."""
    calls = [[token] for token in tokens] if oracle.keeps_states(model) else [tokens]
    past, rows = None, []
    for call in calls:
        result = model.model(torch.tensor([call]), past_key_values=past, use_cache=True)
        past = result.past_key_values
        rows.append(result.last_hidden_state[0])
    return torch.cat(rows)


@torch.no_grad()
def compare_with_transformers(
    model: torch.nn.Module, tokens: list[int], logits: np.ndarray
) -> None:
    """For families whose blocks transformers runs, at positions that are all one further."""
    # It looks for the layers of the published sizes.
    model._keys_to_ignore_on_load_unexpected = [
        rf"model\.layers\.{model.config.num_hidden_layers}\..*"
    ]
    block = MtpModel.from_pretrained(model)
    rows = block.forward_layer(
        0,
        hidden_rows(model, tokens)[None, :-1],
        torch.arange(1, len(tokens))[None],
        None,
        input_ids=torch.tensor([tokens[1:]]),
    )
    theirs = model.lm_head(rows)[0].double().numpy()
    if not np.allclose(theirs, logits, rtol=0, atol=1e-4 * logits.std()):
        raise SystemExit(f"transformers guesses otherwise: {np.abs(theirs - logits).max()}")


@torch.no_grad()
def run(
    model: torch.nn.Module, block: Block, tokens: list[int], chain: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Logits of all positions but the last, of CHAIN - 1 guesses more, and the guesses (or those of
    `chain`, for a run in another precision to follow)."""
    hidden = hidden_rows(model, tokens)
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


def make(name: str, twins: list[str]) -> None:
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
        if hasattr(model.config, "num_mtp_layers"):
            compare_with_transformers(model, tokens, logits)
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
    for case in sys.argv[1:] or GUESSING:
        make(case, GUESSING[case])

"""Makes embeddings.json beside this file, of checkpoints of the golden cases. Needs torch and
transformers; see README.md.

python tests/golden/make_embeddings.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).parent
LENGTHS = (1, 17, 90)
LOGIT_IDS = (200, 17, 3)
# Checkpoint, and whether every token is to see all others.
CASES = (("qwen3", True), ("qwen2", False), ("llama_bf16", True))


def prompts(vocabulary: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randint(3, vocabulary, (length,), generator=generator).tolist() for length in LENGTHS
    ]


@torch.no_grad()
def rows(model: Any, ids: list[int], causal: bool) -> torch.Tensor:
    """After the final norm, in the model's dtype."""
    # Transformers' classes know no is_causal: a mask of their own shape is added as it is.
    count = len(ids)
    mask = None if causal else torch.zeros(1, 1, count, count, dtype=model.dtype)
    out = model.model(input_ids=torch.tensor([ids]), attention_mask=mask, use_cache=False)
    return out.last_hidden_state[0]


def answers(model: Any, ids: list[int], causal: bool) -> dict[str, list[float]]:
    """Pooled without normalisation."""
    hidden = rows(model, ids, causal)
    wide = hidden.float()
    found = {"last": wide[-1], "mean": wide.mean(0), "cls": wide[0]}
    found["logits"] = model.lm_head(hidden[-1]).detach().float()[list(LOGIT_IDS)]
    return {name: [float(f"{x:.9g}") for x in vector] for name, vector in found.items()}


def make(name: str, causal: bool) -> dict[str, Any]:
    folder = str(ROOT / name)
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        size = model.config.vocab_size
        found[dtype] = [answers(model, ids, causal) for ids in prompts(size)]
    cosines = [
        {
            pooling: float(torch.cosine_similarity(*map(torch.tensor, (a[pooling], b[pooling])), 0))
            for pooling in a
        }
        for a, b in zip(found[torch.float32], found[torch.bfloat16], strict=True)
    ]
    return {
        "folder": name,
        "causal": causal,
        "prompts": prompts(size),
        "float32": found[torch.float32],
        "bfloat16_cosine": cosines,
    }


def main() -> None:
    cases = [make(name, causal) for name, causal in CASES]
    text = json.dumps({"logit_ids": LOGIT_IDS, "cases": cases})
    (ROOT / "embeddings.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Trains the tiny model and writes the checkpoint folder that Headrace opens.

    python train.py                      # everything: tokenizer, training, export, score
    python train.py --resume state.pt --steps 9000
    python train.py --score              # only checks ./checkpoint, with transformers

Needs torch, tokenizers, safetensors and (for the score) transformers, which nothing else in
Headrace needs. README.md says how the shipped checkpoint was made.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from dialogues import SKILLS, Dialogue, draw, is_right, load_heldout
from model import Decoder, Shape
from tokens import (
    BOS_ID,
    EOS_ID,
    IGNORE,
    UNK_ID,
    VOCAB_SIZE,
    Encoder,
    Example,
    train_tokenizer,
    write_tokenizer,
)

HERE = Path(__file__).parent

TOKENS_PER_BATCH = 1536
BATCHES_PER_STEP = 4
POOL = 4096  # examples sorted by length together, so that batches need little padding
PROMPT_SHARE = 0.1  # share of the tokens outside of replies that are learnt too
WARMUP_STEPS = 100
DECAY_SHARE = 0.25  # of all steps, at the end, with a falling learning rate
MATRIX_RATE = 0.01
OTHER_RATE = 3e-3

Batch = tuple[Tensor, Tensor]  # ids and labels, both [examples, length]


def pad(examples: list[Example], rng: random.Random) -> Batch:
    """Examples as one batch, padded on the right; labels outside of replies mostly ignored."""
    length = max(len(example.ids) for example in examples)
    ids = torch.full((len(examples), length), UNK_ID)
    labels = torch.full((len(examples), length), IGNORE)
    for row, example in enumerate(examples):
        kept = [
            label if is_reply or rng.random() < PROMPT_SHARE else IGNORE
            for label, is_reply in zip(example.labels, example.is_reply, strict=True)
        ]
        ids[row, : len(kept)] = torch.tensor(example.ids)
        labels[row, : len(kept)] = torch.tensor(kept)
    return ids, labels


def batches(encoder: Encoder, seed: int) -> Iterator[Batch]:
    """Endless batches of fresh examples of about TOKENS_PER_BATCH tokens, in random order."""
    rng = random.Random(seed)
    while True:
        pool = sorted((encoder.random(rng) for _ in range(POOL)), key=lambda e: len(e.ids))
        groups: list[list[Example]] = [[]]
        for example in pool:
            if (len(groups[-1]) + 1) * len(example.ids) > TOKENS_PER_BATCH and groups[-1]:
                groups.append([])
            groups[-1].append(example)
        rng.shuffle(groups)
        for group in groups:
            yield pad(group, rng)


def batch_loss(model: Decoder, ids: Tensor, labels: Tensor) -> Tensor:
    """Summed cross entropy of the labelled places."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(ids)
        known = labels != IGNORE
        logits = model.logits(hidden[known])
    return F.cross_entropy(logits.float(), labels[known], reduction="sum")


def make_optimizers(model: Decoder) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms."""
    matrices = [p for p in model.layers.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if all(p is not m for m in matrices)]
    muon = torch.optim.Muon(
        matrices, lr=MATRIX_RATE, weight_decay=0.05, adjust_lr_fn="original", ns_steps=5
    )
    adamw = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for optimizer in (muon, adamw):
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return [muon, adamw]


def rate(step: int, steps: int) -> float:
    """Share of the peak learning rate: warm-up, plateau, linear fall to zero."""
    fall = (steps - step) / max(1.0, DECAY_SHARE * steps)
    return min(1.0, (step + 1) / WARMUP_STEPS, fall)


def train_step(
    model: Decoder, optimizers: list[torch.optim.Optimizer], stream: Iterator[Batch], scale: float
) -> float:
    """One update from BATCHES_PER_STEP batches; returns the mean loss."""
    work = [next(stream) for _ in range(BATCHES_PER_STEP)]
    places = sum(int((labels != IGNORE).sum()) for _, labels in work)
    total = 0.0
    for ids, labels in work:
        loss = batch_loss(model, ids, labels) / places
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * scale
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return total


@torch.no_grad()
def skill_scores(model: Decoder, encoder: Encoder, per_skill: int = 40) -> dict[str, float]:
    """Share of new held-out questions per skill whose whole reply is the greedy one.

    Greedy decoding gives the expected reply exactly if each of its tokens has the best score when
    the tokens before it are given, so one forward pass per question is enough.
    """
    rng = random.Random(1)
    scores = {}
    for skill in SKILLS:
        if skill in ("greeting", "courtesy", "beyond", "too_large"):
            continue
        asked = (draw(rng, skill, rng.choice(("en", "zh")), heldout=True) for _ in range(per_skill))
        examples = [encoder.dialogue(Dialogue(None, (exchange,))) for exchange in asked]
        ids, _ = pad(examples, rng)
        best = model.logits(model(ids)).argmax(-1).tolist()
        right = 0
        for row, example in zip(best, examples, strict=True):
            places = [i for i, is_reply in enumerate(example.is_reply) if is_reply]
            right += all(row[i] == example.labels[i] for i in places)
        scores[skill] = right / per_skill
    return scores


def train(args: argparse.Namespace) -> None:
    """Trains from scratch or from a saved state, reports as it goes, and exports."""
    torch.manual_seed(args.seed)
    first = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        tokenizer, first = Tokenizer.from_str(state["tokenizer"]), state["step"]
    else:
        tokenizer = train_tokenizer(args.seed)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise RuntimeError(f"{tokenizer.get_vocab_size()} tokens instead of {VOCAB_SIZE}")
    encoder, model = Encoder(tokenizer), Decoder(Shape(VOCAB_SIZE))
    optimizers = make_optimizers(model)
    if args.resume:
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    stream, start, mean = batches(encoder, args.seed + first), time.time(), 0.0
    for step in range(first, args.steps):
        loss = train_step(model, optimizers, stream, rate(step, args.steps))
        mean = loss if step == first else 0.98 * mean + 0.02 * loss
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {mean:.4f} {time.time() - start:.0f} s", flush=True)
        if (step + 1) % args.report_every == 0 or step + 1 == args.steps:
            report(skill_scores(model, encoder))
            if args.state and rate(step + 1, args.steps) == 1.0:
                save_state(args.state, step + 1, model, optimizers, tokenizer)
    export(model, tokenizer, args.out)


def report(scores: dict[str, float]) -> None:
    """Prints the share of exact replies per skill and their mean."""
    line = " ".join(f"{skill} {score:.2f}" for skill, score in scores.items())
    print(f"  exact {sum(scores.values()) / len(scores):.3f}: {line}", flush=True)


def save_state(
    path: Path,
    step: int,
    model: Decoder,
    optimizers: list[torch.optim.Optimizer],
    tokenizer: Tokenizer,
) -> None:
    """Everything needed to go on training."""
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "tokenizer": tokenizer.to_str(),
    }
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)  # so that a run that is cut leaves the last whole one


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def export(model: Decoder, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the folder in the Hugging Face layout, weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    special = {"pad_token_id": UNK_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    config = {
        "architectures": ["Ernie4_5ForCausalLM"],
        "model_type": "ernie4_5",
        **asdict(model.shape),
        **special,
        "hidden_act": "silu",
        "use_bias": False,
        "use_cache": True,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {**special, "do_sample": False})
    weights = {
        f"model.{name}": value.to(torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(tokenizer, folder, model.shape.max_position_embeddings)


@torch.no_grad()
def score(folder: Path, dtype: torch.dtype) -> None:
    """Prints how many questions of heldout.jsonl transformers answers right, greedily."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    items = load_heldout(HERE / "heldout.jsonl")
    right: Counter[str] = Counter()
    for item in items:
        inputs = tokenizer.apply_chat_template(
            item["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        ids = model.generate(**inputs, max_new_tokens=64)[0, inputs["input_ids"].shape[1] :]
        reply = tokenizer.decode(ids, skip_special_tokens=True)
        if is_right(reply, item):
            right[item["skill"]] += 1
        else:
            print(f"  wrong: {item['messages'][-1]['content']!r} -> {reply!r}")
    asked = Counter(item["skill"] for item in items)
    print(", ".join(f"{skill} {right[skill]}/{count}" for skill, count in asked.items()))
    print(f"{dtype}: {right.total()} of {len(items)} right", flush=True)


def main() -> None:
    """Trains and scores, or only scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=HERE / "checkpoint")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--report-every", type=int, default=250)
    parser.add_argument("--state", type=Path, help="where to save the training state")
    parser.add_argument("--resume", type=Path, help="training state to go on from")
    parser.add_argument("--score", action="store_true", help="only score the exported folder")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not args.score:
        train(args)
    for dtype in (torch.float32, torch.bfloat16):
        score(args.out, dtype)


if __name__ == "__main__":
    main()

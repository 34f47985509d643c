"""Trains the tiny vision model and writes the checkpoint folder that Headrace opens.

    python train_vision.py                     # everything: tokenizer, training, export, score
    python train_vision.py --resume state.pt --steps 9000
    python train_vision.py --score             # only checks ./checkpoint, with transformers

Needs numpy, torch, tokenizers, safetensors and (for the score) transformers. README.md says how the
shipped checkpoint was made.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from beside import HERE
from cells import LABELS, cells, practice
from export import export
from pictures import Picture, draw
from questions import HELDOUT, Dialogue, draw_scene, heldout_question, training_dialogue
from scenes import SIZES
from tokens import IGNORE, UNK_ID
from train import rate, report, save_state
from vision_model import VisionModel, VisionShape, sparse_layers
from vision_tokens import TEXT_SIZE, Encoder, Example, train_tokenizer

IMAGES_PER_STEP = 30  # of each process
CLIPS_PER_STEP = 6
PRACTICE_STEPS = 600  # at the start, without questions
PRACTICE_PER_STEP = 32
PRACTICE_BESIDE = 12  # later, beside the questions
SEEING_STEPS = 850  # from here on the tower and the resampler are left as they are
APART = 5  # steps that processes take on their own before their weights are averaged
POOL = 4  # steps whose pictures are drawn together
TURNS = 4  # questions about a scene
TALK_SHARE = 0.02
CELL_SHARE = 2.0  # of the loss of cells
MATRIX_RATE = 0.01
OTHER_RATE = 3e-3
BALANCE_RATE = 1e-3
EASY_STEPS = 200

# How often each kind of picture is shown at first, and EASY_STEPS later: what is easy comes first.
_WEIGHTS: dict[str, tuple[float, float]] = {
    "single": (4, 1.6),
    "pair": (2, 3.6),
    "many": (1, 1.4),
    "number": (1, 1.8),
    "word": (1, 0.8),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """ids and labels: [examples, length]. positions: [3, examples, length]. pixels: uint8 [items,
    frames, height, width, 3]. cells: [items, rows, labels], what the rows should know."""

    ids: Tensor
    labels: Tensor
    positions: Tensor
    pixels: Tensor
    cells: Tensor


def collate(examples: list[Example]) -> Batch:
    """Examples as one batch, padded on the right; only replies are learnt."""
    length = max(len(example.ids) for example in examples)
    ids = torch.full((len(examples), length), UNK_ID)
    labels = torch.full((len(examples), length), IGNORE)
    positions = torch.zeros((3, len(examples), length), dtype=torch.long)
    for row, example in enumerate(examples):
        own = len(example.ids)
        kept = [
            label if is_reply else IGNORE
            for label, is_reply in zip(example.labels, example.is_reply, strict=True)
        ]
        ids[row, :own] = torch.tensor(example.ids)
        labels[row, :own] = torch.tensor(kept)
        positions[:, row, :own] = torch.tensor(example.positions).T
    shown = [example.picture for example in examples if example.picture]
    pixels = torch.stack([torch.from_numpy(draw(picture)) for picture in shown])
    known = torch.stack([torch.from_numpy(cells(picture)) for picture in shown])
    return Batch(ids, labels, positions, pixels, known.float())


def _kinds(rng: random.Random, share: float) -> list[str]:
    weights = [(1 - share) * first + share * last for first, last in _WEIGHTS.values()]
    kinds = rng.choices(tuple(_WEIGHTS), weights, k=IMAGES_PER_STEP)
    return ["talk" if rng.random() < TALK_SHARE else kind for kind in kinds]


def _in_batches(rng: random.Random, examples: list[Example], count: int) -> list[Batch]:
    """Examples of about the same length together, so that batches need little padding."""
    examples.sort(key=lambda example: len(example.ids))
    size = len(examples) // count
    batches = [collate(examples[i * size : (i + 1) * size]) for i in range(count)]
    rng.shuffle(batches)
    return batches


def steps_work(rng: random.Random, encoder: Encoder, share: float) -> list[tuple[Batch, Batch]]:
    """What POOL steps learn from: pictures of one size each, and clips of another. share: from 0
    at the start to 1 where the weights are the later ones."""
    size, other = rng.choice(SIZES), rng.choice(SIZES)
    images = [
        encoder.dialogue(training_dialogue(rng, kind, size, TURNS))
        for _ in range(POOL)
        for kind in _kinds(rng, share)
    ]
    clips = [
        encoder.dialogue(training_dialogue(rng, "clip", other, TURNS))
        for _ in range(POOL * CLIPS_PER_STEP)
    ]
    return list(zip(_in_batches(rng, images, POOL), _in_batches(rng, clips, POOL), strict=True))


class Learner(nn.Module):
    """The model, and what reads its rows while they are learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.model = VisionModel(VisionShape(), TEXT_SIZE)
        self.cells = nn.Linear(self.model.shape.text.hidden_size, len(LABELS))


def cell_loss(learner: Learner, pictures: list[Picture]) -> Tensor:
    """Of a cell of pictures of one size, or of clips."""
    pixels = torch.stack([torch.from_numpy(draw(picture)) for picture in pictures])
    known = torch.stack([torch.from_numpy(cells(picture)) for picture in pictures]).float()
    with torch.autocast("cpu", torch.bfloat16):
        seen = learner.cells(learner.model.rows(pixels))
    loss = F.binary_cross_entropy_with_logits(seen.float(), known, reduction="sum")
    return loss / known[..., 0].numel()


def practice_step(
    learner: Learner, optimizers: list[torch.optim.Optimizer], rng: random.Random, scale: float
) -> tuple[float, float]:
    """One update of the tower and the resampler alone: nothing is asked."""
    size = rng.choice(SIZES)
    shown = [practice(rng, size) for _ in range(PRACTICE_PER_STEP)]
    shown += [
        draw_scene(rng, rng.choice(tuple(_WEIGHTS)), size).picture
        for _ in range(PRACTICE_PER_STEP // 3)
    ]
    clips = [draw_scene(rng, "clip", size).picture for _ in range(PRACTICE_PER_STEP // 10)]
    loss = sum(cell_loss(learner, pictures) for pictures in (shown, clips)) / 2
    loss.backward()
    update(learner, optimizers, scale)
    return 0.0, loss.item()


def update(learner: Learner, optimizers: list[torch.optim.Optimizer], scale: float) -> None:
    """A step of the optimizers along the gradients that are there."""
    torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * scale
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def make_optimizers(learner: Learner) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of layers and resampler; AdamW for embeddings, routers, norms and
    biases."""
    apart = ("embed_tokens", "patch_embed", "mlp.gate.weight", "cells.weight")
    matrices, others = [], []
    for name, parameter in learner.named_parameters():
        hidden = parameter.dim() == 2 and not any(part in name for part in apart)
        (matrices if hidden else others).append(parameter)
    muon = torch.optim.Muon(
        matrices, lr=MATRIX_RATE, weight_decay=0.05, adjust_lr_fn="original", ns_steps=5
    )
    adamw = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for optimizer in (muon, adamw):
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return [muon, adamw]


def train_step(
    learner: Learner,
    optimizers: list[torch.optim.Optimizer],
    work: Sequence[Batch],
    shown: list[Picture],
    scale: float,
) -> tuple[float, float]:
    """One update from questions, and from pictures to practise with: without these the tower and
    the resampler stay as they are. Returns the mean losses of a token of the replies and of a
    cell."""
    model = learner.model
    places = sum(int((batch.labels != IGNORE).sum()) for batch in work)
    area = sum(batch.cells[..., 0].numel() for batch in work)
    of_replies = of_cells = 0.0
    for batch in work:
        with torch.autocast("cpu", torch.bfloat16):
            with torch.set_grad_enabled(bool(shown)):
                rows = model.rows(batch.pixels)
                seen = learner.cells(rows)
            hidden = model(batch.ids, batch.positions, rows)
            known = batch.labels != IGNORE
            logits = model.logits(hidden[known])
        said = F.cross_entropy(logits.float(), batch.labels[known], reduction="sum") / places
        cell = F.binary_cross_entropy_with_logits(seen.float(), batch.cells, reduction="sum") / area
        (said + CELL_SHARE * cell).backward()
        of_replies += said.item()
        of_cells += cell.item()
    if shown:
        cell_loss(learner, shown).backward()
    update(learner, optimizers, scale)
    for layer in sparse_layers(model):
        layer.rebalance(BALANCE_RATE * scale)
    return of_replies, of_cells


@torch.no_grad()
def average(learner: Learner, seconds: float) -> float:
    """Gives all processes the mean of their weights; returns that of their seconds."""
    clock = torch.tensor([seconds])
    tensors = [*learner.parameters(), *learner.buffers(), clock]
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = flat.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
    return clock.item()


@torch.no_grad()
def skill_scores(model: VisionModel, encoder: Encoder, per_skill: int = 32) -> dict[str, float]:
    """Share of new held-out questions per skill whose whole reply is the greedy one.

    Greedy decoding gives the expected reply exactly if each of its tokens has the best score when
    the tokens before it are given, so one forward pass is enough.
    """
    rng = random.Random(1)
    model.eval()
    scores = {}
    for kind, asks, _ in HELDOUT:
        made = []
        for i in range(per_skill):
            scene, exchange = heldout_question(rng, kind, asks, ("en", "zh")[i % 2], SIZES[0])
            made.append(encoder.dialogue(Dialogue(None, scene, (exchange,))))
        batch = collate(made)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model(batch.ids, batch.positions, model.rows(batch.pixels))
            best = model.logits(hidden).argmax(-1)
        wrong = ((best != batch.labels) & (batch.labels != IGNORE)).any(-1)
        scores[f"{kind}.{asks.__name__}"] = 1 - wrong.float().mean().item()
    model.train()
    return scores


def train(process: int, args: argparse.Namespace, meeting: str) -> None:
    """Trains from scratch or from a saved state, reports as it goes, and exports. Several processes
    meet in a file; each makes pictures of its own, and the first one reports. Every APART steps
    they go on with the mean of their weights."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    if args.processes > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", world_size=args.processes, rank=process
        )
    first = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        tokenizer, first = Tokenizer.from_str(state["tokenizer"]), state["step"]
    else:
        tokenizer = train_tokenizer(args.seed)
    encoder, learner = Encoder(tokenizer), Learner()
    model, optimizers = learner.model, make_optimizers(learner)
    if args.resume:
        learner.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    rng = random.Random(f"{args.seed} {first} {process}")
    start, spent = time.time(), 0.0
    mean, pool = [], []
    for step in range(first, args.steps):
        scale = 1 - spent if args.minutes else rate(step, args.steps)
        if step < PRACTICE_STEPS:
            found = practice_step(learner, optimizers, rng, scale)
        else:
            pool = pool or steps_work(rng, encoder, min(1.0, (step - PRACTICE_STEPS) / EASY_STEPS))
            size, more = rng.choice(SIZES), PRACTICE_BESIDE if step < SEEING_STEPS else 0
            beside = [practice(rng, size) for _ in range(more)]
            found = train_step(learner, optimizers, pool.pop(), beside, scale)
        mean = [0.95 * old + 0.05 * new for old, new in zip(mean or found, found, strict=True)]
        if (step + 1) % APART == 0:
            seconds = time.time() - start
            if args.processes > 1:
                seconds = average(learner, seconds)
            spent = seconds / 60 / args.minutes if args.minutes else 0.0
        last = step + 1 == args.steps or spent >= 1
        if (step + 1) % 25 == 0 and not process:
            seconds = time.time() - start
            print(f"step {step + 1} loss {mean[0]:.4f}, {mean[1]:.4f} {seconds:.0f} s", flush=True)
        if ((step + 1) % args.report_every == 0 or last) and not process:
            report(skill_scores(model, encoder))
            export(model, tokenizer, args.out)
            if args.state and not args.minutes and rate(step + 1, args.steps) == 1.0:
                save_state(args.state, step + 1, learner, optimizers, tokenizer)
        if last:
            return


def main() -> None:
    """Trains and scores, or only scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=HERE / "checkpoint")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument(
        "--minutes", type=float, help="end after these, the rates falling to zero from the start"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report-every", type=int, default=100)
    parser.add_argument("--state", type=Path, help="where to save the training state")
    parser.add_argument("--resume", type=Path, help="training state to go on from")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (args, f"{folder}/meeting"), args.processes)


if __name__ == "__main__":
    main()

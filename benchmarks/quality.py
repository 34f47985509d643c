"""What settings cost in quality: the shipped model's perplexity and held-out answers with each, and
the held-out answers of examples/tiny_vision about pictures and clips (needs numpy).

    python benchmarks/quality.py
    python benchmarks/quality.py '{}' '{"quantization": "wint4", "group_size": 64}'

Each argument is a JSON object of LLM's keywords, "model" among them; the first is what the others
are compared with. The perplexity is that of whole dialogues, questions and replies, from a seed
that training hasn't seen. (Of the replies alone it is 1.001: the model knows them.) No figure
depends on the machine's speed.
"""

import argparse
import importlib
import json
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace import LLM, SamplingParams, shipped_model

TINY = Path(__file__).resolve().parents[1] / "examples" / "tiny_model"
VISION = TINY.parent / "tiny_vision"
SEED = 20_270_101
SETTINGS: list[dict[str, Any]] = [
    {},
    *(
        {"quantization": {"quantization": name, "group_size": size}}
        for name in ("wint8", "wint4")
        for size in (32, 64, 128)
    ),
]


@dataclass(frozen=True)
class Quality:
    perplexity: float
    tokens: int  # that the perplexity is over
    right: int  # of the held-out questions
    questions: int


def _module(folder: Path, name: str) -> Any:
    """A module beside one of the examples' models."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def measure(settings: dict[str, Any], dialogues: int = 600) -> Quality:
    made = _module(TINY, "dialogues")
    rng = random.Random(SEED)
    texts = [made.training_dialogue(rng).messages() for _ in range(dialogues)]
    items = made.load_heldout(TINY / "heldout.jsonl")
    with LLM(**{"model": shipped_model(), "enable_logprob": True, **settings}) as llm:
        read = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        losses = [x for output in llm.chat(texts, read, use_tqdm=False) for x in _losses(output)]
        answer = SamplingParams(temperature=0.0, max_tokens=64)
        replies = llm.chat([item["messages"] for item in items], answer, use_tqdm=False)
    right = sum(
        made.is_right(reply.outputs.text, item) for reply, item in zip(replies, items, strict=True)
    )
    return Quality(math.exp(math.fsum(losses) / len(losses)), len(losses), right, len(items))


def right_about_pictures(settings: dict[str, Any]) -> int:
    """How many held-out questions the tiny vision model answers right."""
    made = _module(VISION, "questions")
    items = made.load_heldout(VISION / "heldout.jsonl")
    conversations = [made.messages_of(item) for item in items]
    with LLM(**{**settings, "model": str(VISION / "checkpoint")}) as llm:
        answer = SamplingParams(temperature=0.0, max_tokens=64)
        replies = llm.chat(conversations, answer, use_tqdm=False)
    return sum(
        made.is_right(reply.outputs.text, item) for reply, item in zip(replies, items, strict=True)
    )


def _losses(output: Any) -> list[float]:
    pairs = zip(output.prompt_logprobs[1:], output.prompt_token_ids[1:], strict=True)
    return [-entry[token].logprob for entry, token in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", type=json.loads, default=SETTINGS)
    parser.add_argument("--dialogues", type=int, default=600)
    args = parser.parse_args()
    base = None
    for settings in args.settings:
        found = measure(settings, args.dialogues)
        base = base or found
        change = found.perplexity / base.perplexity - 1
        said = f"perplexity {found.perplexity:.4f} ({change:+.2%}) over {found.tokens} tokens"
        print(f"{json.dumps(settings)}: {said}, {found.right} of {found.questions} right", end="")
        if "model" not in settings:
            print(f"; about pictures {right_about_pictures(settings)} of 200", end="")
        print(flush=True)


if __name__ == "__main__":
    main()

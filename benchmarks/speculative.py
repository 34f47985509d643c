"""What guessing gains and costs: tokens per second with and without it, in turns.

    python benchmarks/speculative.py --shape qwen2-0.5b --output 128

A bias makes random weights repeat a token ("repeats": every guess is right), or draw from 16 of
them ("misleading": there is always something to guess, and 15 of 16 guesses are wrong). Without
one they are incompressible ("random": there is nothing to guess)."""

import argparse
import random
from typing import Any

import common
from headrace import LLM, SamplingParams

KINDS: dict[str, dict[str, Any]] = {
    "repeats": {"temperature": 0.0, "logits_processors_args": {"logit_bias": {5: 1000.0}}},
    "misleading": {
        "temperature": 1.0,
        "seed": 7,
        "logits_processors_args": {"logit_bias": dict.fromkeys(range(5, 21), 1000.0)},
    },
    "random": {"temperature": 1.0, "seed": 7},
}


def tokens_per_second(
    llm: LLM, prompts: list[list[int]], output: int, how: dict[str, Any]
) -> float:
    """Of decoding: from the last first token to the end."""
    llm.clear_prefix_cache()
    params = SamplingParams(max_tokens=output, ignore_eos=True, **how)
    results = llm.generate(prompts, params, use_tqdm=False)
    first, whole = common.model_seconds(results)
    return len(prompts) * (output - 1) / (whole - first)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--guesses", type=int, default=8)
    args: argparse.Namespace = parser.parse_args()
    folder, config = common.checkpoint(args)
    rng = random.Random(0)
    ids = [
        [rng.randrange(3, config["vocab_size"]) for _ in range(args.prompt)]
        for _ in range(args.requests)
    ]
    options: dict[str, Any] = {
        "num_threads": args.threads,
        "max_num_seqs": args.requests,
        "max_model_len": args.prompt + args.output,
    }
    guessing = {"method": "ngram", "num_speculative_tokens": args.guesses}
    with (
        LLM(str(folder), **options) as plain,
        LLM(str(folder), speculative_config=guessing, **options) as guesser,
    ):
        both = (plain, guesser)
        for kind, how in KINDS.items():
            before = guesser.stats()
            pairs = []
            for turn in range(args.repeats):
                order = both if turn % 2 == 0 else both[::-1]
                pair = [tokens_per_second(llm, ids, args.output, how) for llm in order]
                pairs.append(pair if turn % 2 == 0 else pair[::-1])
            after = guesser.stats()
            ratios = sorted(fast / slow for slow, fast in pairs)
            common.report(
                text=kind,
                shape=args.shape,
                requests=args.requests,
                plain_tok_s=round(common.median([slow for slow, _ in pairs]), 1),
                guessing_tok_s=round(common.median([fast for _, fast in pairs]), 1),
                ratio=round(common.median(ratios), 3),
                ratio_range=[round(ratios[0], 3), round(ratios[-1], 3)],
                steps=after.steps - before.steps,
                drafted=after.drafted_tokens - before.drafted_tokens,
                accepted=after.accepted_tokens - before.accepted_tokens,
            )


if __name__ == "__main__":
    main()

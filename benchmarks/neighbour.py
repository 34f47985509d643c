"""Decode alone and beside a process that keeps one core busy.

    python benchmarks/neighbour.py --shape qwen2-0.5b --output 48

A fair system gives T threads and the neighbour on C cores the same time each: the threads keep
C / (T + 1) of a core each, if T + 1 > C. That is fair_share, the speed beside the neighbour as a
share of the speed alone; memory-bound work may do better. Both are measured in turns."""

import os
import random
import subprocess
import sys
import time

import common
from headrace import LLM, SamplingParams


def seconds_per_token(llm: LLM, prompt: list[int], output: int) -> float:
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
    first, whole = common.model_seconds(llm.generate(prompt, params, use_tqdm=False))
    return (whole - first) / (output - 1)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=48)
    parser.add_argument("--dtype", default="auto")
    args = parser.parse_args()
    folder, config = common.checkpoint(args)
    rng = random.Random(0)
    prompt = [rng.randrange(3, config["vocab_size"]) for _ in range(args.prompt)]
    alone, beside = [], []
    with LLM(str(folder), num_threads=args.threads, dtype=args.dtype,
             max_model_len=args.prompt + args.output + 64) as llm:  # fmt: skip
        seconds_per_token(llm, prompt, args.output)  # warm-up
        for _ in range(args.repeats):
            alone.append(seconds_per_token(llm, prompt, args.output))
            neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            try:
                time.sleep(0.2)
                beside.append(seconds_per_token(llm, prompt, args.output))
            finally:
                neighbour.kill()
                neighbour.wait()
    cores = len(os.sched_getaffinity(0))
    common.report(
        shape=args.shape,
        threads=args.threads,
        alone_tok_s=round(1 / common.median(alone), 1),
        beside_tok_s=round(1 / common.median(beside), 1),
        share=round(common.median(alone) / common.median(beside), 3),
        fair_share=round(min(1.0, cores / (args.threads + 1)), 3),
    )


if __name__ == "__main__":
    main()

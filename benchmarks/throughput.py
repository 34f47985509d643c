"""Many requests at once: output tokens per second over the whole run.

python benchmarks/throughput.py --shape qwen2-0.5b --requests 8 --prompt 128 --output 64"""

import random
import time

import common
from headrace import LLM, SamplingParams


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--mixed", action="store_true", help="lengths from a quarter to twice")
    args = parser.parse_args()
    folder, config = common.checkpoint(args)
    rng = random.Random(0)
    rates = []
    longest = 2 * (args.prompt + args.output)
    with LLM(str(folder), num_threads=args.threads, max_num_seqs=min(64, args.requests),
             max_num_batched_tokens=512, max_model_len=longest) as llm:  # fmt: skip
        for repeat in range(args.repeats + 1):
            prompts, params = [], []
            for _ in range(args.requests):
                scale = rng.uniform(0.25, 2.0) if args.mixed else 1.0
                length = max(1, int(args.prompt * scale))
                output = max(1, int(args.output * scale))
                prompts.append([rng.randrange(3, config["vocab_size"]) for _ in range(length)])
                params.append(SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True))
            start = time.perf_counter()
            results = llm.generate(prompts, params, use_tqdm=False)
            seconds = time.perf_counter() - start
            if repeat > 0:  # the first is warm-up
                rates.append(sum(len(r.outputs.token_ids) for r in results) / seconds)
    common.report(
        shape=args.shape, requests=args.requests, output_tok_s=round(common.median(rates), 2)
    )


if __name__ == "__main__":
    main()

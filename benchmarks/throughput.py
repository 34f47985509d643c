"""Many requests at once: output tokens per second over the whole run.

python benchmarks/throughput.py --shape qwen2-0.5b --requests 8 --prompt 128 --output 64
python benchmarks/throughput.py --shape llama-3.1-8b --device cuda --requests 1000 --sharegpt"""

import math
import random
import time
from typing import Any

import common
from headrace import LLM, SamplingParams

LONGEST = 2048  # tokens of a --sharegpt request


def sharegpt_like(rng: random.Random) -> tuple[int, int]:
    """Prompt and output, as benchmarks/cuda/work.h has them."""
    prompt = min(1024, max(4, int(rng.lognormvariate(math.log(100), 1.45))))
    return prompt, min(LONGEST - prompt, max(4, int(rng.lognormvariate(math.log(112), 1.0))))


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--mixed", action="store_true", help="lengths from a quarter to twice")
    parser.add_argument("--sharegpt", action="store_true", help="lengths like ShareGPT's, instead")
    parser.add_argument("--seqs", type=int, help="at once; default 64, on a GPU 256")
    common.add_device(parser)
    args = parser.parse_args()
    folder, config = common.checkpoint(args)
    rng = random.Random(0)
    rates = []
    longest = LONGEST if args.sharegpt else 2 * (args.prompt + args.output)
    on_cpu = args.device == "cpu"
    seqs = args.seqs or (64 if on_cpu else 256)
    budget: dict[str, Any] = {"max_num_batched_tokens": 512} if on_cpu else {}
    with LLM(str(folder), device=args.device, num_threads=args.threads, max_model_len=longest,
             max_num_seqs=min(seqs, args.requests), **budget) as llm:  # fmt: skip
        for repeat in range(args.repeats + 1):
            prompts, params = [], []
            for _ in range(args.requests):
                scale = rng.uniform(0.25, 2.0) if args.mixed else 1.0
                length = max(1, int(args.prompt * scale))
                output = max(1, int(args.output * scale))
                if args.sharegpt:
                    length, output = sharegpt_like(rng)
                prompts.append([rng.randrange(3, config["vocab_size"]) for _ in range(length)])
                params.append(SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True))
            start = time.perf_counter()
            results = llm.generate(prompts, params, use_tqdm=False)
            seconds = time.perf_counter() - start
            if repeat > 0:  # the first is warm-up
                rates.append(sum(len(r.outputs.token_ids) for r in results) / seconds)
    rate = round(common.median(rates), 2)
    common.report(shape=args.shape, device=args.device, requests=args.requests, output_tok_s=rate)


if __name__ == "__main__":
    main()

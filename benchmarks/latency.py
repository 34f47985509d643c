"""One request: time to the first token and time per output token, as shares of their floors.

    python benchmarks/latency.py --shape qwen2-0.5b --prompt 512 --output 32

The machine's limits are measured before and after each repeat and averaged: its memory speed
changes within minutes."""

import random

import common
from headrace import LLM, SamplingParams


def run(llm: LLM, prompt: list[int], output: int) -> tuple[float, float]:
    """Seconds in the model up to the first token, and per later token."""
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
    first, whole = common.model_seconds(llm.generate(prompt, params, use_tqdm=False))
    return first, (whole - first) / (output - 1)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=32)
    parser.add_argument("--dtype", default="auto")
    args = parser.parse_args()
    folder, config = common.checkpoint(args)
    rng = random.Random(0)
    prefill, decode = [], []
    with LLM(str(folder), num_threads=args.threads, dtype=args.dtype, max_num_batched_tokens=512,
             max_model_len=args.prompt + args.output + 64) as llm:  # fmt: skip
        for repeat in range(args.repeats + 1):
            before = common.measure_limits(args.threads)
            ids = [rng.randrange(3, config["vocab_size"]) for _ in range(args.prompt)]
            first, each = run(llm, ids, args.output)
            after = common.measure_limits(args.threads)
            if repeat == 0:
                continue  # warm-up
            for limits in (before, after):
                context = args.prompt + args.output / 2
                decode.append(common.decode_floor(config, context, limits) / each)
                prefill.append(common.prefill_floor(config, args.prompt, limits) / first)
            common.report(ttft_s=round(first, 4), tpot_s=round(each, 5))
    common.report(
        shape=args.shape,
        prompt=args.prompt,
        prefill_share_of_floor=round(common.median(prefill), 3),
        decode_share_of_floor=round(common.median(decode), 3),
    )


if __name__ == "__main__":
    main()

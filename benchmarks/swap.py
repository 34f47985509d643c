"""Time to the first token of a long prompt that comes back, in swap space or computed again.

    python benchmarks/swap.py --shape qwen2-0.5b --prompt 2048

The KV cache holds one conversation; several are continued by turns, so that each has left it when
its next turn comes."""

import random
from typing import Any

import common
from headrace import LLM, SamplingParams


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--conversations", type=int, default=3)
    args = parser.parse_args()
    folder, config = common.checkpoint(args)
    rng = random.Random(0)
    vocabulary = range(3, config["vocab_size"])
    texts = [rng.choices(vocabulary, k=args.prompt) for _ in range(args.conversations)]
    params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    most = args.prompt + 2
    size = 2 * args.conversations * most * common.kv_bytes_per_token(config) / 2**30
    options: dict[str, Any] = {
        "num_threads": args.threads,
        "max_model_len": most,
        "num_gpu_blocks_override": most // 64 + 2,
    }
    with (
        LLM(str(folder), **options) as plain,
        LLM(str(folder), swap_space=max(size, 0.01), **options) as swapping,
    ):
        seconds: dict[LLM, list[float]] = {plain: [], swapping: []}
        for turn in range(args.repeats + 1):
            for text in texts:
                for llm in (plain, swapping):
                    first, _ = common.model_seconds(llm.generate(text, params, use_tqdm=False))
                    if turn > 0:
                        seconds[llm].append(first)
        stats = swapping.stats()
        again, back = (common.median(seconds[llm]) for llm in (plain, swapping))
        common.report(
            shape=args.shape,
            prompt=args.prompt,
            computed_again_s=round(again, 4),
            from_swap_space_s=round(back, 4),
            ratio=round(again / back, 2),
            host_hit_tokens=stats.prefix_host_hit_tokens,
            hit_tokens=stats.prefix_hit_tokens,
        )


if __name__ == "__main__":
    main()

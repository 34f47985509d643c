"""What guided decoding costs a step: all requests free, half of them guided, all of them guided.

The vocabulary is a synthetic one of the model's full size, because masks cost by the vocabulary.

python benchmarks/guided.py --shape qwen2-0.5b --requests 8 --output 64"""

import itertools
import random
import string

import common
from headrace import Engine, GenerationConfig
from headrace.grammar import Grammar
from headrace.grammar.compiler import GrammarCache
from headrace.native import ModelOptions
from headrace.text.token_bytes import TokenBytes

SCHEMA = """{"type": "array", "minItems": 100000, "items": {"type": "object", "properties": {
  "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items":
  {"enum": ["red", "green", "blue"]}}}, "required": ["name", "age"]}}"""


def vocabulary(size: int) -> TokenBytes:
    """Printable bytes, then words, some with a space in front."""
    letters = [bytes([byte]) for byte in range(0x20, 0x7F)]
    words = map("".join, itertools.product(string.ascii_lowercase, repeat=4))
    rng = random.Random(0)
    return TokenBytes(
        letters + [rng.choice(("", " ")).encode() + next(words).encode() for _ in range(size - 95)]
    )


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--output", type=int, default=64)
    args = parser.parse_args()
    folder, config = common.checkpoint(args)
    size = config["vocab_size"]
    constraint, _ = GrammarCache(vocabulary(size)).compile(Grammar("json_schema", SCHEMA))
    rng = random.Random(0)
    with Engine() as engine:
        options = ModelOptions(
            path=str(folder),
            num_threads=args.threads,
            max_num_seqs=args.requests,
            max_model_len=args.prompt + args.output,
        )
        engine.install_model("m", options)
        engine.start_model("m")
        figures: dict[int, list[tuple[float, float]]] = {}
        for repeat in range(args.repeats + 1):
            for guided in (0, args.requests // 2, args.requests):
                before = engine.model_stats("m")
                requests = []
                for i in range(args.requests):
                    prompt = [rng.randrange(3, size) for _ in range(args.prompt)]
                    sampling = GenerationConfig(max_tokens=args.output, ignore_eos=True, seed=i)
                    own = constraint if i < guided else None
                    requests.append(engine.submit("m", prompt, sampling, guided=own))
                for request in requests:
                    request.wait()
                after = engine.model_stats("m")
                steps = after.steps - before.steps
                busy = (after.busy_seconds - before.busy_seconds) / steps
                late = (after.mask_wait_seconds - before.mask_wait_seconds) / steps
                if repeat > 0:  # the first is warm-up
                    figures.setdefault(guided, []).append((busy, late))
    for guided, runs in figures.items():
        common.report(
            shape=args.shape,
            requests=args.requests,
            guided=guided,
            step_ms=round(1e3 * common.median([busy for busy, _ in runs]), 3),
            waited_for_masks_ms=round(1e3 * common.median([late for _, late in runs]), 4),
        )


if __name__ == "__main__":
    main()

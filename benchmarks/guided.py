"""What guided decoding costs a step: all requests free, half of them guided, all of them guided.
And what llguidance and the engine's own constraints take to compile a schema and for a mask.

The vocabulary is a synthetic one of the model's full size, because masks cost by the vocabulary.

python benchmarks/guided.py --shape qwen2-0.5b --requests 8 --output 64"""

import itertools
import random
import string
import time

import common
from headrace import Engine, GenerationConfig, _core
from headrace.grammar import Grammar
from headrace.grammar.compiler import GrammarCache
from headrace.grammar.library import library
from headrace.native import ModelOptions
from headrace.text.token_bytes import TokenBytes

SCHEMA = """{"type": "array", "minItems": 100000, "items": {"type": "object", "properties": {
  "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items":
  {"enum": ["red", "green", "blue"]}}}, "required": ["name", "age"]}}"""


CLOSING = frozenset(bytes([byte]) for byte in b'"}],:')


def vocabulary(size: int) -> TokenBytes:
    """Printable bytes, then words, some with a space in front."""
    letters = [bytes([byte]) for byte in range(0x20, 0x7F)]
    words = map("".join, itertools.product(string.ascii_lowercase, repeat=4))
    rng = random.Random(0)
    return TokenBytes(
        letters + [rng.choice(("", " ")).encode() + next(words).encode() for _ in range(size - 95)]
    )


def report_masks(tokens: TokenBytes, length: int) -> None:
    """Compiles, then follows a random output, once with each of the two. In processor time."""
    for name, path in (("llguidance", library()), ("own", None)):
        compiler = _core.GrammarCompiler(
            path, tokens=tokens.tokens, first_tokens=[], special_tokens=[], special_restarts=False
        )
        begin = time.process_time()
        constraint = compiler.compile(_core.GrammarKind.JSON_SCHEMA, SCHEMA)
        compile_ms = 1e3 * (time.process_time() - begin)
        matcher = constraint.start()
        rng = random.Random(0)
        masks = []
        for _ in range(length):
            begin = time.process_time()
            matcher.next(0)  # the whole mask is made, and none of it copied
            masks.append(1e3 * (time.process_time() - begin))
            allowed, _ = matcher.next(len(tokens.tokens))
            # A word or two, then its end: outputs are not all one string.
            closing = [token for token in allowed if tokens.tokens[token] in CLOSING]
            matcher.append(rng.choice(closing if closing and rng.random() < 0.5 else allowed))
        common.report(
            engine=name,
            compile_ms=round(compile_ms, 3),
            first_mask_ms=round(masks[0], 4),
            mask_ms=round(common.median(masks), 4),
            slowest_mask_ms=round(max(masks), 4),
        )


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--output", type=int, default=64)
    args = parser.parse_args()
    folder, config = common.checkpoint(args)
    size = config["vocab_size"]
    words = vocabulary(size)
    report_masks(words, 4 * args.output)
    constraint, _ = GrammarCache(words).compile(Grammar("json_schema", SCHEMA))
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

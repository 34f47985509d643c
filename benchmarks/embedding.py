"""Embeddings against the engine's own prefill, and against sentence-transformers.

    python benchmarks/embedding.py --shape qwen3-0.6b --texts 64 --length 128

"prefill" generates one token for each prompt. With --peer PYTHON, an interpreter that has torch and
sentence-transformers, its `encode` of the same ids takes turns with ours, in the same dtype.
"of_prefill" and "times_the_peer" are of the medians; texts share nothing."""

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import common
from headrace import LLM, SamplingParams

PEER = """
import json, sys, time
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
folder, dtype, threads = sys.argv[1:]
torch.set_num_threads(int(threads) or torch.get_num_threads())
body = Transformer(folder, model_kwargs={"dtype": getattr(torch, dtype)})
size = body.auto_model.config.hidden_size
pooling = Pooling(size, pooling_mode="lasttoken")
model = SentenceTransformer(modules=[body, pooling, Normalize()], device="cpu").eval()
# Ids instead of texts, so that both read the same; what encode() does besides is its own.
texts = {}
def tokenize(names, *_, **__):
    ids = torch.tensor([texts[name] for name in names])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
model.tokenize = model.preprocess = body.tokenize = body.preprocess = tokenize
print("ready", flush=True)
for line in sys.stdin:
    texts = {str(i): ids for i, ids in enumerate(json.loads(line))}
    start = time.perf_counter()
    model.encode(list(texts), batch_size=64)
    print(time.perf_counter() - start, flush=True)
"""


class Peer:
    def __init__(self, python: str, folder: str, dtype: str, threads: int) -> None:
        command = [python, "-c", PEER, folder, dtype, str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready" or line[:1].isdigit():
                return line
        raise SystemExit("the peer has ended")

    def seconds(self, prompts: list[list[int]]) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(prompts) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        self._process.communicate()


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--peer", help="an interpreter with sentence-transformers")
    args = parser.parse_args()
    folder, _ = common.checkpoint(args)
    size = args.texts * args.length
    one = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    times: dict[str, list[float]] = {"embed": [], "prefill": []}
    peer = None
    if args.peer:
        peer = Peer(args.peer, str(folder), args.dtype, args.threads)
        times["peer"] = []
    options: dict[str, Any] = {
        "dtype": args.dtype,
        "num_threads": args.threads,
        "max_model_len": 2048,
    }
    with LLM(
        str(folder), enable_prefix_caching=False, gpu_memory_utilization=0.4, **options
    ) as llm:
        for run in range(args.repeats + 1):  # the first warms up
            low = 3 + run * args.texts  # nothing is shared
            prompts = [
                [low + i] + [7 + (i * 31 + j) % 1000 for j in range(1, args.length)]
                for i in range(args.texts)
            ]
            found = {
                "embed": timed(partial(llm.embed, prompts, use_tqdm=False)),
                "prefill": timed(partial(llm.generate, prompts, one, use_tqdm=False)),
            }
            if peer is not None:
                found["peer"] = peer.seconds(prompts)
            if run:
                for name, seconds in found.items():
                    times[name].append(seconds)
    if peer is not None:
        peer.close()
    medians = {name: common.median(values) for name, values in times.items()}
    figures = {f"{name}_tok_s": round(size / seconds) for name, seconds in medians.items()}
    figures["of_prefill"] = round(medians["prefill"] / medians["embed"], 3)
    if peer is not None:
        figures["times_the_peer"] = round(medians["peer"] / medians["embed"], 2)
    common.report(shape=args.shape, dtype=args.dtype, threads=args.threads, **figures)


if __name__ == "__main__":
    main()

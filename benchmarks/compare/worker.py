"""One engine in a process of its own, driven by lines of JSON on stdin (compare.py writes them).

    worker.py ENGINE MODEL WEIGHTS THREADS CONTEXT REQUESTS DEVICE

The first line of output is written when the engine has given its first token. Then each line of
input {"requests": [[prompt tokens, output tokens], ...]} is answered with {"first_s": time to the
first token, "last_s": time to the last, "tokens": how many}. An empty line ends it: the last
answer is {"peak_rss": bytes}."""

import importlib
import json
import random
import sys
import time
from pathlib import Path

from setup import Setup

ENGINES = {
    "headrace": "engine_headrace",
    "headrace-packed": "engine_headrace",
    "llama.cpp": "engine_llama_cpp",
    "openvino": "engine_openvino",
    "transformers": "engine_transformers",
}


def peak_rss() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Clock:
    """An engine calls it at every token that it gives."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.times: list[float] = []

    def token(self, count: int = 1) -> None:
        self.times += [time.perf_counter() - self.start] * count


def answer(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def main() -> None:
    name, model, weights, threads, context, requests, device = sys.argv[1:]
    module = importlib.import_module(ENGINES[name])
    engine = module.Engine(Setup(model, weights, int(threads), int(context), int(requests), device))
    rng = random.Random(0)
    engine.run([([5, 6, 7, 8], 1)], Clock())
    answer(ready=True)
    for line in sys.stdin:
        if not line.strip():
            break
        work = []
        for prompt, output in json.loads(line)["requests"]:
            work.append(([rng.randrange(3, engine.vocab_size) for _ in range(prompt)], output))
        clock = Clock()
        engine.run(work, clock)
        answer(first_s=clock.times[0], last_s=clock.times[-1], tokens=len(clock.times))
    answer(peak_rss=peak_rss())


if __name__ == "__main__":
    main()

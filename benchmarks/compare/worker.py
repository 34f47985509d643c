"""One engine in a process of its own, driven by lines of JSON on stdin (compare.py writes them).

    worker.py ENGINE MODEL WEIGHTS THREADS CONTEXT REQUESTS DEVICE text|image

The first line of output is written when the engine has given its first token. Then each line of
input {"requests": [[prompt tokens, output tokens], ...]} is answered with {"first_s": time to the
first token, "last_s": time to the last, "tokens": how many}. With `image` a line is {"image":
[height, width], "text": tokens behind it}: a picture that no line before it had, and one token. An
empty line ends it: the last answer is {"peak_rss": bytes}."""

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
WITH_IMAGES = {
    "headrace": "engine_headrace",
    "openvino": "engine_openvino_image",
    "transformers": "engine_transformers_image",
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


def picture(rng: random.Random, height: int, width: int):
    """A disc before shades, [height, width, 3]: where and how bright is by chance."""
    import numpy as np

    y, x = np.ogrid[:height, :width]
    shades = np.stack(np.broadcast_arrays(x * 255 // width, y * 255 // height, (x + y) % 256), -1)
    middle, radius = (rng.randrange(height), rng.randrange(width)), 2 + rng.randrange(height // 2)
    shades[(y - middle[0]) ** 2 + (x - middle[1]) ** 2 < radius**2] = rng.randrange(256)
    return shades.astype(np.uint8)


def run(engine, rng: random.Random, task: dict) -> Clock:
    if "image" in task:
        shown = picture(rng, *task["image"])
        text = [rng.randrange(256) for _ in range(task["text"])]  # tokens of single bytes
        clock = Clock()
        engine.show(shown, text, clock)
        return clock
    work = []
    for prompt, output in task["requests"]:
        work.append(([rng.randrange(3, engine.vocab_size) for _ in range(prompt)], output))
    clock = Clock()
    engine.run(work, clock)
    return clock


def main() -> None:
    name, model, weights, threads, context, requests, device, kind = sys.argv[1:]
    module = importlib.import_module((WITH_IMAGES if kind == "image" else ENGINES)[name])
    engine = module.Engine(Setup(model, weights, int(threads), int(context), int(requests), device))
    rng = random.Random(0)
    run(
        engine, rng, {"image": [112, 112], "text": 4} if kind == "image" else {"requests": [[4, 1]]}
    )
    answer(ready=True)
    for line in sys.stdin:
        if not line.strip():
            break
        clock = run(engine, rng, json.loads(line))
        answer(first_s=clock.times[0], last_s=clock.times[-1], tokens=len(clock.times))
    answer(peak_rss=peak_rss())


if __name__ == "__main__":
    main()

"""Random work for a long time: memory must stay flat, and no KV block may be lost.

    python tests/soak/soak.py --minutes 30 [--seed N]

Threads and an event loop submit, read, cancel, release and abandon requests of every kind (ids and
text, grammars, adapters, deadlines, log-probabilities) to two models, one of which is stopped,
started, released and installed again all the time. Now and then everything drains: then every block
must be free, no request left, and the process no larger than it was after the second round.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import importlib.util
import os
import random
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("headrace") is None:
    sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "tests" / "python" / "support"))

import native_model  # noqa: E402
from adapters import make_adapter  # noqa: E402

from headrace import (  # noqa: E402
    Engine,
    FinishReason,
    GenerationConfig,
    GuidedDecodingParams,
    HeadraceError,
    Request,
)

STEADY, RESTLESS = "steady", "restless"
# What a model answers that comes and goes, and what adapters answer that do.
EXPECTED = {"invalid_state", "not_found"}
EXPECTED_OF_ADAPTERS = {*EXPECTED, "limit_exceeded"}
ADAPTERS = ("one", "two", "three")
CHOICES = ["yes", "no", "maybe so"]
GUIDES = [
    GuidedDecodingParams(choice=CHOICES),
    GuidedDecodingParams(regex="[0-9]{1,5}(\\.[0-9]+)?"),
    GuidedDecodingParams(json_object=True),
    GuidedDecodingParams(json={"type": "object", "properties": {"a": {"type": "integer"}}}),
]
SLACK = 8 << 20  # bytes: arenas of threads, caches of the interpreter
PR_SET_THP_DISABLE = 41
M_MMAP_THRESHOLD = -3


class Soak:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.engine = Engine()
        self.counts: Counter[str] = Counter()
        self.choosing: weakref.WeakSet[Request] = weakref.WeakSet()
        self.failures: list[BaseException] = []
        self.options = native_model.options(
            folder,
            block_size=16,
            num_kv_blocks=160,
            kv_cache_bytes=0,
            max_num_seqs=16,
            max_loras=2,
            max_lora_rank=8,
        )
        self.adapters = {
            name: make_adapter(folder / name, native_model.LLAMA, 2 + i, i)
            for i, name in enumerate(ADAPTERS)
        }
        for name in (STEADY, RESTLESS):
            self.engine.install_model(name, self.options)
            self.engine.start_model(name)

    # --- requests ---------------------------------------------------------------------------------

    def submit(self, rng: random.Random) -> Request | None:
        """A random request; None if its model was away."""
        config = GenerationConfig(
            temperature=rng.choice([0.0, 1.0]),
            max_tokens=rng.choice([1, 5, 20, 200]),
            ignore_eos=rng.random() < 0.5,
            logprobs=rng.choice([None, None, 3]),
            prompt_logprobs=rng.choice([None, None, None, 2]),
            repetition_penalty=rng.choice([1.0, 1.3]),
            seed=rng.choice([None, 7]),
        )
        prompt: str | list[int] = "The quick brown fox " * rng.randrange(1, 12)
        if rng.random() < 0.5:
            prompt = [rng.randrange(3, 200) for _ in range(rng.randrange(1, 150))]
        timeout = rng.choice([None, None, None, 0.0, 0.02])
        model = rng.choice([STEADY, STEADY, RESTLESS])
        lora = rng.choice(["", "", *ADAPTERS])
        guided = rng.choice([None, None, *GUIDES])
        try:
            request = self.engine.submit(
                model,
                prompt,
                config,
                priority=rng.randrange(3),
                timeout=timeout,
                detokenize=True,
                lora=lora,
                guided=guided,
            )
        except HeadraceError as error:
            if error.code not in EXPECTED or (model == STEADY and not lora):
                raise
            self.counts["refused"] += 1
            return None
        self.counts["submitted"] += 1
        self.counts["guided"] += guided is not None
        self.counts["with adapter"] += lora != ""
        if guided is GUIDES[0]:
            self.choosing.add(request)
        return request

    def check(self, request: Request, text: str) -> None:
        """Whoever has read all of an output sees that it is what it had to be."""
        if request in self.choosing and request.results().finish_reason() is FinishReason.STOP:
            assert text in CHOICES, text
            self.counts["chosen"] += 1

    def finish(self, rng: random.Random, request: Request) -> None:
        """What a thread may do with a request."""
        way = rng.randrange(6)
        if way == 0:
            request.release()
        elif way == 1:
            request.cancel()
        elif way == 2:
            return  # forgotten: it runs on
        elif way == 3:
            request.wait()
        else:
            text = ""
            for output in request.results():
                text += output.text
                if rng.random() < 0.02:
                    request.cancel()
            self.check(request, text)
        self.counts[f"way {way}"] += 1

    async def finish_async(self, rng: random.Random, request: Request) -> None:
        way = rng.randrange(4)
        if way == 0:
            async with request:
                await request.results().get_async(0.01)
        elif way == 1:
            await request
        else:
            self.check(request, "".join([o.text async for o in request.results()]))
        self.counts[f"async way {way}"] += 1

    # --- workers ----------------------------------------------------------------------------------

    def client(self, rng: random.Random) -> None:
        requests = [self.submit(rng) for _ in range(rng.randrange(1, 8))]
        for request in requests:
            if request is not None:
                self.finish(rng, request)

    def coroutines(self, rng: random.Random) -> None:
        async def one() -> None:
            request = self.submit(rng)
            if request is not None:
                await self.finish_async(rng, request)

        async def main() -> None:
            await asyncio.gather(*(one() for _ in range(rng.randrange(1, 20))))

        asyncio.run(main())

    def restless(self, rng: random.Random) -> None:
        engine = self.engine
        if rng.random() < 0.5:
            engine.stop_model(RESTLESS, rng.choice([0.0, 0.05, None]))
        if rng.random() < 0.7 or engine.model_stats(RESTLESS).state.name != "STOPPED":
            engine.release_model(RESTLESS)
            engine.install_model(RESTLESS, self.options)
        engine.start_model(RESTLESS)
        engine.clear_prefix_cache(rng.choice([STEADY, RESTLESS]))
        self.counts["restarts"] += 1
        time.sleep(rng.uniform(0, 0.3))

    def change_adapters(self, rng: random.Random) -> None:
        model, name = rng.choice([STEADY, RESTLESS]), rng.choice(ADAPTERS)
        try:
            if rng.random() < 0.5:
                self.engine.load_lora(model, name, self.adapters[name])
                self.counts["loaded"] += 1
            else:
                self.engine.unload_lora(model, name)
                self.counts["unloaded"] += 1
        except HeadraceError as error:
            if error.code not in EXPECTED_OF_ADAPTERS:
                raise
        time.sleep(rng.uniform(0, 0.02))

    def work(self, job: Callable[[random.Random], None], number: int, end: float) -> None:
        rng = random.Random(self.seed * 1000 + number)
        try:
            while time.monotonic() < end and not self.failures:
                job(rng)
        except BaseException as error:
            self.failures.append(error)

    def jobs(self) -> list[Callable[[random.Random], None]]:
        clients = [self.client, self.client, self.client, self.coroutines]
        return [*clients, self.change_adapters, self.restless]

    def round(self, number: int, seconds: float) -> None:
        """Works, then drains and looks."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self.work, args=(job, number * 100 + i, end))
            for i, job in enumerate(self.jobs())
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        for name in (STEADY, RESTLESS):
            self.engine.stop_model(name)
            stats = self.engine.model_stats(name)
            assert stats.running_requests == stats.waiting_requests == 0, stats
            assert stats.free_kv_blocks == stats.total_kv_blocks, stats.free_kv_blocks
            self.engine.start_model(name)


def resident_bytes() -> int:
    """Of this process, after everything that can be given back has been."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(minutes: float, seed: int) -> None:
    print(f"soak: seed {seed}", flush=True)
    # Huge pages would make the size of a region that is barely used a matter of luck, and glibc
    # keeps the end of a thread's arena: neither says anything about a leak.
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(seed, native_model.make_folder(Path(folder)))
        end = time.monotonic() + 60 * minutes
        seconds = max(5.0, min(60.0, 10 * minutes))
        sizes: list[int] = []
        while time.monotonic() < end or len(sizes) < 3:
            soak.round(len(sizes), seconds)
            sizes.append(resident_bytes())
            print(f"{sizes[-1] / 2**20:.1f} MiB", dict(soak.counts), flush=True)
        soak.engine.close()
    # The first rounds bring in code and arenas.
    growth = sizes[-1] - sizes[1]
    assert growth < SLACK, f"resident memory grew by {growth} bytes: {sizes}"
    print(f"soak: passed, grew by {growth / 2**20:.1f} MiB after the second round")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    run(args.minutes, args.seed)

"""Random work for a long time: memory must stay flat, and no KV block may be lost.

    python tests/soak/soak.py --minutes 30 [--seed N]

Threads and an event loop submit, read, cancel, release and abandon requests of every kind (ids and
text, grammars, adapters, deadlines, log-probabilities) to two models, one of which is stopped,
started, released and installed again all the time. Now and then everything drains: then every block
must be free, no request left, and the process no larger than it was after the first minute's work.
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
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("headrace") is None:
    sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "tests" / "python"))

import native_model  # noqa: E402

from headrace import Engine, GenerationConfig, HeadraceError, Request  # noqa: E402

STEADY, RESTLESS = "steady", "restless"
EXPECTED = {"invalid_state", "not_found"}  # what a model that comes and goes answers
SLACK = 8 << 20  # bytes: arenas of threads, caches of the interpreter
PR_SET_THP_DISABLE = 41
M_MMAP_THRESHOLD = -3


class Soak:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.engine = Engine()
        self.counts: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.options = native_model.options(
            folder, block_size=16, num_kv_blocks=160, kv_cache_bytes=0, max_num_seqs=16
        )
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
        try:
            request = self.engine.submit(
                model, prompt, config, priority=rng.randrange(3), timeout=timeout
            )
        except HeadraceError as error:
            if error.code not in EXPECTED or model == STEADY:
                raise
            self.counts["refused"] += 1
            return None
        self.counts["submitted"] += 1
        return request

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
            for _ in request.results():
                if rng.random() < 0.02:
                    request.cancel()
        self.counts[f"way {way}"] += 1

    async def finish_async(self, rng: random.Random, request: Request) -> None:
        way = rng.randrange(4)
        if way == 0:
            async with request:
                await request.results().get_async(0.01)
        elif way == 1:
            await request
        else:
            async for _ in request.results():
                pass
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

    def work(self, job: Callable[[random.Random], None], number: int, end: float) -> None:
        rng = random.Random(self.seed * 1000 + number)
        try:
            while time.monotonic() < end and not self.failures:
                job(rng)
        except BaseException as error:
            self.failures.append(error)

    def jobs(self) -> list[Callable[[random.Random], None]]:
        return [self.client, self.client, self.client, self.coroutines, self.restless]

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
    # The first round brings in code and arenas.
    growth = sizes[-1] - sizes[1]
    assert growth < SLACK, f"resident memory grew by {growth} bytes: {sizes}"
    print(f"soak: passed, grew by {growth / 2**20:.1f} MiB after the first rounds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    run(args.minutes, args.seed)

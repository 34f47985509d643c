"""Fresh interpreters that use an engine and end at any moment: none hangs, crashes or complains.

HEADRACE_EXIT_ROUNDS says how often each way to end is tried (default 3)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("HEADRACE_EXIT_ROUNDS", "3"))
PRELUDE = """
import asyncio, os, random, sys, threading, time
sys.path[:0] = {path!r}
from headrace import LLM, Engine, Selector
from native_model import ENDLESS, greedy, options
random.seed({seed})
engine = Engine()
engine.install_model("m", options({folder!r}, num_threads=2))
engine.start_model("m")
def submit(config=ENDLESS, **more):
    return engine.submit("m", [5, 6, 7], config, **more)
def pause():
    time.sleep(random.uniform(0, 0.02))
"""
WAYS = {
    "readers of every kind": """
        requests = [submit(detokenize=i % 2 == 0) for i in range(12)]
        selector = Selector()
        def select():
            for tag, request in enumerate(requests):
                selector.add(request.results(), tag)
            while True:
                selector.wait()
        def loop():
            async def read(request):
                async for _ in request.results():
                    pass
            async def main():
                await asyncio.gather(*(read(request) for request in requests))
            asyncio.run(main())
        def read():
            for _ in requests[1].results():
                pass
        for target in (select, loop, loop, read, requests[0].wait, requests[0].release):
            threading.Thread(target=target, daemon=True).start()
        pause()
        """,
    "a loop with waiting tasks": """
        async def main():
            for _ in range(20):
                asyncio.ensure_future(submit().wait_async())
            await asyncio.sleep(random.uniform(0, 0.02))
        asyncio.run(main())
        """,
    "clients that submit and release": """
        def client():
            while True:
                submit(greedy(3)).results().get()
                submit().release()
        for _ in range(4):
            threading.Thread(target=client, daemon=True).start()
        pause()
        """,
    "a model on its way": """
        def cycle():
            while True:
                engine.stop_model("m")
                engine.release_model("m")
                engine.install_model("m", options({folder!r}))
                engine.start_model("m")
        threading.Thread(target=cycle, daemon=True).start()
        pause()
        """,
    "an LLM in a thread": """
        def generate():
            size = {{"num_threads": 2, "kv_cache_bytes": 1 << 24}}
            with LLM({folder!r}, load_choices="dummy", **size) as llm:
                while True:
                    llm.generate([[5, 6, 7]] * 4, use_tqdm=False)
        threading.Thread(target=generate, daemon=True).start()
        time.sleep(random.uniform(0, 0.2))
        """,
    "a forked child": """
        requests = [submit() for _ in range(4)]
        threading.Thread(target=lambda: list(requests[0].results()), daemon=True).start()
        pause()
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert status == 0, status
        """,
}


@pytest.mark.parametrize("way", list(WAYS))
def test_the_interpreter_ends(way: str, native_folder: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(ROUNDS):
        values = {"path": sys.path, "folder": str(native_folder), "seed": seed + number}
        script = PRELUDE.format(**values) + textwrap.dedent(WAYS[way]).format(**values)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done
        complaints = [
            line for line in done.stderr.splitlines() if "fork() may lead to deadlocks" not in line
        ]
        assert not complaints, done.stderr

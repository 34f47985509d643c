"""Who owns a request: the process that made it, and whoever can still read its output."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from native_model import ENDLESS, greedy

from headrace import Engine, HeadraceError, Selector

PROMPT = [5, 6, 7]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def running(engine: Engine) -> int:
    stats = engine.model_stats("m")
    return stats.running_requests + stats.waiting_requests


@pytest.mark.parametrize("text", [False, True])
def test_nobody_can_read_it(text: bool, native_engine: Engine) -> None:
    request = native_engine.submit("m", PROMPT, ENDLESS, detokenize=text)
    queue = request.results()
    wait_for(lambda: running(native_engine) == 1)
    del request
    gc.collect()
    assert queue.get().token_ids  # the queue alone is enough
    del queue
    gc.collect()
    wait_for(lambda: running(native_engine) == 0)


def test_readers_keep_it(native_engine: Engine) -> None:
    async def read() -> list[int]:
        ids: list[int] = []
        async for output in native_engine.submit("m", PROMPT, greedy(20)).results():
            ids += output.token_ids
            gc.collect()
        return ids

    assert len(asyncio.run(read())) == 20
    ids = [i for output in native_engine.submit("m", PROMPT, greedy(9)).results()
           for i in output.token_ids]  # fmt: skip
    assert len(ids) == 9


def test_detached_ones_run_on(native_engine: Engine) -> None:
    before = native_engine.model_stats("m").generated_tokens
    native_engine.submit("m", PROMPT, greedy(300), detached=True)
    gc.collect()
    wait_for(lambda: native_engine.model_stats("m").finished_requests > 0)
    assert native_engine.model_stats("m").generated_tokens - before == 300


def test_a_forked_child_is_told(native_engine: Engine) -> None:
    request = native_engine.submit("m", PROMPT, ENDLESS, detokenize=True)
    bare = native_engine.submit("m", PROMPT, ENDLESS)
    selector = Selector()
    selector.add(request.results(), 1)

    def run(coroutine: Any) -> Any:
        return asyncio.run(coroutine)

    async def waiting() -> None:
        await request

    calls: dict[str, Callable[[], object]] = {
        "wait": request.wait,
        "release": request.release,
        "cancel": request.cancel,
        "get": request.results().get,
        "get with a time-out": lambda: request.results().get(1),
        "get_nowait": request.results().get_nowait,
        "get of ids": bare.results().get,
        "get_nowait of ids": bare.results().get_nowait,
        "iteration": lambda: list(request.results()),
        "await": lambda: run(waiting()),
        "get_async": lambda: run(request.results().get_async()),
        "status": request.results().status,
        "stats": request.results().stats,
        "Selector.wait": selector.wait,
        "Selector.take": selector.take,
        "submit": lambda: native_engine.submit("m", PROMPT, ENDLESS),
    }
    read, write = os.pipe()
    # As if a reader had the lock when the process forked.
    assert request.results()._text is not None
    with request.results()._text._lock:
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)  # rather than hang
            for name, call in calls.items():
                try:
                    call()
                    os.write(write, f"{name}: no error\n".encode())
                except HeadraceError as error:
                    if error.code != "invalid_state" or "fork" not in str(error):
                        os.write(write, f"{name}: {error.code}: {error}\n".encode())
            os.write(write, b"end")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        told = answers.read()
    os.waitpid(child, 0)
    assert told == "end"
    assert request.results().get().token_ids  # the parent's go on
    request.release()
    bare.release()


def test_a_grammar_without_memory_is_an_error(native_folder: Any) -> None:
    """The library that compiles it would end the process."""
    code = f"""
import resource, sys
sys.path[:0] = {sys.path!r}
from headrace import GuidedDecodingParams
from headrace.grammar import compile_constraint
from headrace.text.tokenizer import Tokenizer
from pathlib import Path
tokenizer = Tokenizer.from_pretrained(Path({str(native_folder)!r}))
guided = [GuidedDecodingParams(regex="a" * (i + 1)) for i in range(3)]
assert compile_constraint(guided[0], tokenizer)
pages = int(open("/proc/self/statm").read().split()[0])
for left in (30, 50, 80):
    limit = pages * resource.getpagesize() + (left << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        compile_constraint(guided[1], tokenizer)
    except RuntimeError as error:
        assert "no memory to compile the regular expression" in str(error), error
        print(left)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert compile_constraint(guided[2], tokenizer)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "30\n50\n80\n"), done.stderr

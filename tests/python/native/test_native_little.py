"""Little address space, forked children with live streams, and subinterpreters."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM, AsyncLLM, EngineError, SamplingParams, shipped_model
from headrace.llm.requests import session
from headrace.llm.requests.session import SessionLoader

ENDLESS = SamplingParams(max_tokens=1000, ignore_eos=True)

LITTLE = """
import os, re, resource, signal, sys
sys.path[:0] = {path!r}
import tokenizers
import headrace.llm.llm
from headrace import LLM, shipped_model
size = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
stack = max(resource.getrlimit(resource.RLIMIT_STACK)[0], 0)
for extra in (0, 4096, 16384, 1 << 16, 1 << 17, 1 << 20, 1 << 23):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        resource.setrlimit(resource.RLIMIT_AS, (size + stack + extra,) * 2)
        try:
            LLM(shipped_model(), kv_cache_bytes=1 << 20, num_threads=1)
        except Exception as error:
            os._exit(0 if "no memory for the thread" in str(error) else 1)
        os._exit(2)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_model_is_refused_where_its_thread_could_not_begin() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LITTLE.format(path=sys.path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["0"] * 7, done.stderr


def test_threads_that_do_not_begin(make_llm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(session, "has_room", lambda size: False)
        with pytest.raises(EngineError, match="no memory for the thread"):
            make_llm()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(EngineError, match="can't start new thread"):
            make_llm()
    with monkeypatch.context() as patched:  # it dies before its first line
        patched.setattr(SessionLoader, "_load", lambda self: None)
        with pytest.raises(EngineError, match="no memory for the thread"):
            make_llm()
    make_llm()


def in_child(run: Callable[[], object]) -> str:
    """What a forked child writes to stderr while it runs to the end of its interpreter."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 2)
        try:
            run()
        except BaseException as error:
            os.write(2, repr(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as errors:
        said = errors.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_drops_its_parents_stream_in_silence() -> None:
    with LLM(shipped_model(), max_model_len=2048) as llm:
        stream = llm.generate("hi", ENDLESS, stream=True)
        next(stream)
        for run in (stream.close, stream.__del__, llm.close):
            assert in_child(run) == ""
        assert "fork" in in_child(lambda: next(stream))
        assert "Traceback" not in in_child(lambda: next(stream))
        assert next(stream)  # the parent's goes on
        stream.close()


def test_a_forked_child_drops_its_parents_async_stream_in_silence() -> None:
    async def main() -> None:
        async with AsyncLLM(shipped_model(), max_model_len=2048) as llm:
            stream = llm.generate("hi", ENDLESS)
            async for _ in stream:
                break

            def drain(coroutine: Any) -> None:
                with pytest.raises(StopIteration):
                    coroutine.send(None)

            for run in (lambda: drain(stream.aclose()), lambda: drain(llm.close())):
                assert in_child(run) == ""
            assert in_child(stream.__del__) == ""
            await stream.aclose()

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore")
def test_subinterpreters_are_refused() -> None:
    interpreters = pytest.importorskip("_xxsubinterpreters")
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
try:
    import headrace
except ImportError as error:
    assert "main interpreter" in str(error), error
else:
    raise SystemExit("it was imported")
"""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {interpreters.__name__} as i; i.run_string(i.create(), {code!r})",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(sys.executable).parent,
    )
    assert done.returncode == 0, done.stderr

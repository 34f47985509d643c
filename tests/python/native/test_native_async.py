"""The native API from coroutines: one loop, several at once, and what happens at the edges."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from native_model import ENDLESS, greedy, options

from headrace import Engine, FinishReason, Request, RequestStatus, ResultQueue
from headrace.native import wakeup

PROMPT = [5, 6, 7]


async def read_all(queue: ResultQueue) -> list[int]:
    return [token_id async for output in queue for token_id in output.token_ids]


def test_await_and_async_for(native_engine: Engine) -> None:
    async def main() -> None:
        request = native_engine.submit("m", PROMPT, greedy(30), detokenize=True)
        first = await request.results()
        text, ids = first.text, first.token_ids
        async for output in request.results():
            text += output.text
            ids += output.token_ids
        assert len(ids) == 30
        assert await request is FinishReason.LENGTH
        assert (await request.results().get_async()).finished
        assert (await request.results().get_async(0.0)) is not None
        tokenizer = native_engine.tokenizer("m")
        assert tokenizer is not None
        assert text == tokenizer.decode(ids, skip_special_tokens=True)

    asyncio.run(main())


def test_awaiting_a_request_takes_no_output(native_engine: Engine) -> None:
    async def main() -> None:
        requests = [native_engine.submit("m", PROMPT, greedy(5 + i)) for i in range(20)]
        assert await asyncio.gather(*requests) == [FinishReason.LENGTH] * 20
        for i, request in enumerate(requests):
            assert request.results().generated_length() == 5 + i
            output = request.results().get_nowait()
            assert output is not None
            assert len(output.token_ids) == 5 + i

    asyncio.run(main())


def test_timeouts_and_cancellation_lose_nothing(native_engine: Engine) -> None:
    async def main() -> None:
        native_engine.submit("m", PROMPT, greedy(1)).wait()
        expected = await read_all(native_engine.submit("m", PROMPT, greedy(500)).results())
        request = native_engine.submit("m", PROMPT, greedy(500))
        ids: list[int] = []
        finished = False
        while not finished:
            task = asyncio.ensure_future(request.results().get_async())
            await asyncio.sleep(0)
            if task.cancel() and not task.done():
                with pytest.raises(asyncio.CancelledError):
                    await task
            elif not task.cancelled():
                ids += task.result().token_ids
            output = await request.results().get_async(0.001)
            if output is not None:
                ids += output.token_ids
                finished = output.finished
        assert ids == expected
        endless = native_engine.submit("m", PROMPT, ENDLESS)
        assert not await endless.wait_async(0.01)
        endless.release()
        assert await endless.wait_async(0.01)

    asyncio.run(main())


def test_leaving_an_async_block_releases(native_engine: Engine) -> None:
    async def main() -> None:
        async with native_engine.submit("m", PROMPT, ENDLESS) as request:
            await request.results()
        assert request.results().status() is RequestStatus.FINISHED

    asyncio.run(main())
    assert native_engine.model_stats("m").running_requests == 0


def test_several_loops_at_once(native_engine: Engine) -> None:
    expected = [list(native_engine.submit("m", [3 + i], greedy(40)).results()) for i in range(8)]
    ids = [[t for output in outputs for t in output.token_ids] for outputs in expected]
    failures: list[Any] = []

    async def client(i: int) -> None:
        assert await read_all(native_engine.submit("m", [3 + i], greedy(40)).results()) == ids[i]

    async def main() -> None:
        for _ in range(5):
            await asyncio.gather(*(client(i) for i in range(8)))

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_one_queue_read_by_loops_and_threads(native_engine: Engine) -> None:
    request = native_engine.submit("m", PROMPT, greedy(3000))
    counts: list[int] = []

    def read_in_thread() -> None:
        counts.append(sum(len(output.token_ids) for output in request.results()))

    async def read_twice() -> None:
        counts.extend(map(len, await asyncio.gather(*[read_all(request.results())] * 1)))

    def run_loop() -> None:
        asyncio.run(read_twice())

    threads = [threading.Thread(target=t) for t in (read_in_thread, run_loop, run_loop) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(counts) == 6, "every reader learns of the end"
    assert sum(counts) == 3000


def test_a_thousand_requests_stream_into_one_loop(native_folder: Path) -> None:
    with Engine() as engine:
        engine.install_model("m", options(native_folder, max_num_seqs=1000, block_size=16))
        engine.start_model("m")

        async def main() -> int:
            requests = [engine.submit("m", [3 + i % 90], greedy(8)) for i in range(1000)]
            return sum(map(len, await asyncio.gather(*(read_all(r.results()) for r in requests))))

        assert asyncio.run(main()) == 8000


def test_ten_thousand_waiting_coroutines_use_no_cpu(native_folder: Path) -> None:
    """All queues wait behind one request that holds the only place."""
    with Engine() as engine:
        engine.install_model("m", options(native_folder, max_num_seqs=1))
        engine.start_model("m")

        async def main() -> float:
            requests = [engine.submit("m", PROMPT, ENDLESS) for _ in range(10_000)]
            tasks = [asyncio.ensure_future(request.wait_async()) for request in requests[1:]]
            await asyncio.sleep(0.5)
            # The first request keeps the engine's thread busy: only this one is looked at.
            before, start = time.thread_time(), time.monotonic()
            await asyncio.sleep(1.0)
            share = (time.thread_time() - before) / (time.monotonic() - start)
            for request in requests:
                request.cancel()
            assert all(await asyncio.gather(*tasks))
            return share

        assert asyncio.run(main()) < 0.01


def test_a_loop_leaves_nothing_behind(native_engine: Engine) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def main() -> weakref.ref[Any]:
        await read_all(native_engine.submit("m", PROMPT, greedy(3)).results())
        return weakref.ref(asyncio.get_running_loop())

    asyncio.run(main())
    gc.collect()
    before = descriptors()
    gone = [asyncio.run(main()) for _ in range(20)]
    gc.collect()
    assert [ref() for ref in gone] == [None] * 20
    assert descriptors() <= before
    assert len(wakeup._wakers) == 0


def test_a_loop_that_ends_early_hurts_nobody(native_engine: Engine) -> None:
    async def leave(request: Request) -> None:
        waiting = asyncio.ensure_future(request.wait_async())
        await asyncio.sleep(0)
        assert not waiting.done()

    for _ in range(50):
        request = native_engine.submit("m", PROMPT, ENDLESS)
        asyncio.run(leave(request))
        request.release()
    assert native_engine.model_stats("m").running_requests == 0


def test_the_engine_goes_while_coroutines_wait(native_folder: Path) -> None:
    async def main() -> list[FinishReason]:
        with Engine() as engine:
            await asyncio.to_thread(engine.install_model, "m", options(native_folder))
            await asyncio.to_thread(engine.start_model, "m")
            requests = [engine.submit("m", PROMPT, ENDLESS) for _ in range(16)]
            tasks = [asyncio.ensure_future(read_all(r.results())) for r in requests]
            await asyncio.sleep(0.02)
            await asyncio.to_thread(engine.close)
            await asyncio.gather(*tasks)
            return [r.results().finish_reason() for r in requests]

    assert asyncio.run(main()) == [FinishReason.ABORT] * 16

"""AsyncLLM on the built engine: LLM's results on an event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    LLM,
    AsyncLLM,
    EngineError,
    GuidedDecodingParams,
    HeadraceError,
    RequestOutput,
    SamplingParams,
    shipped_model,
)
from headrace.llm.requests.collector import Collector

HELLO = [{"role": "user", "content": "Hello"}]
ENDLESS = SamplingParams(max_tokens=500, ignore_eos=True, seed=1)


@pytest.fixture(scope="module")
def model() -> Iterator[AsyncLLM]:
    """Loaded once: an AsyncLLM isn't bound to an event loop."""
    llm = AsyncLLM(shipped_model(), enable_logprob=True, max_num_seqs=16, num_threads=1)
    yield llm
    asyncio.run(llm.close())


@pytest.fixture(scope="module")
def plain() -> Iterator[LLM]:
    with LLM(shipped_model(), enable_logprob=True, max_num_seqs=16, num_threads=1) as llm:
        yield llm


async def joined(updates: Any) -> RequestOutput:
    """One output from its increments."""
    whole: RequestOutput | None = None
    async for update in updates:
        if whole is None:
            whole = update
        else:
            whole.accumulate(update)
    assert whole is not None
    return whole


def facts(output: RequestOutput) -> Any:
    parts = output.outputs
    assert parts is not None
    return (
        parts.index,
        parts.token_ids,
        parts.text,
        parts.finish_reason,
        parts.stop_reason,
        parts.logprobs,
        output.prompt,
        output.prompt_token_ids,
        output.finished,
        output.error_code,
        output.error_msg,
    )


CASES = [
    SamplingParams(max_tokens=12, temperature=0),
    SamplingParams(max_tokens=12, seed=3, logprobs=2),
    SamplingParams(max_tokens=30, temperature=0, stop=["help", "zzz"]),
    SamplingParams(max_tokens=30, temperature=0, stop=["can I"], include_stop_str_in_output=True),
    SamplingParams(max_tokens=20, seed=4, stop_token_ids=[35]),
    SamplingParams(
        max_tokens=20, seed=5, guided_decoding=GuidedDecodingParams(choice=["yes", "no"])
    ),
]


@pytest.mark.parametrize("params", CASES, ids=range(len(CASES)))
def test_results_are_llms(model: AsyncLLM, plain: LLM, params: SamplingParams) -> None:
    expected = facts(plain.chat(HELLO, params, use_tqdm=False)[0])

    async def both() -> list[RequestOutput]:
        whole, streamed = model.chat(HELLO, params).result(), joined(model.chat(HELLO, params))
        return list(await asyncio.gather(whole, streamed))

    whole, streamed = asyncio.run(both())
    assert facts(whole) == expected
    assert facts(streamed) == expected


def test_several_outputs_tell_their_index(model: AsyncLLM, plain: LLM) -> None:
    params = SamplingParams(max_tokens=6, n=3, seed=7)
    expected = [facts(o) for o in plain.generate("Once", params, use_tqdm=False)]

    async def run() -> tuple[list[RequestOutput], dict[int, RequestOutput]]:
        parts: dict[int, RequestOutput] = {}
        async for update in model.generate("Once", params, request_id="r"):
            assert update.outputs is not None
            assert update.request_id == f"r_{update.outputs.index}"
            known = parts.setdefault(update.outputs.index, update)
            if known is not update:
                known.accumulate(update)
        return await model.generate("Once", params).results(), parts

    whole, parts = asyncio.run(run())
    assert [facts(output) for output in whole] == expected
    assert [facts(parts[index]) for index in range(3)] == expected
    with pytest.raises(ValueError, match="n is 3"):
        asyncio.run(model.generate("Once", params).result())


def test_two_thousand_requests_on_one_loop(model: AsyncLLM, plain: LLM) -> None:
    prompts = [f"Number {i}" for i in range(2000)]
    params = [SamplingParams(max_tokens=3, seed=i, ignore_eos=True) for i in range(2000)]
    before = threading.active_count()
    most = 0

    async def one(number: int) -> RequestOutput:
        nonlocal most
        stream = model.generate(prompts[number], params[number])
        result = await (joined(stream) if number % 2 else stream.result())
        most = max(most, threading.active_count())
        return result

    async def run() -> list[RequestOutput]:
        return list(await asyncio.gather(*map(one, range(2000))))

    outputs = asyncio.run(run())
    assert most <= before + 3  # for templates and tokenizing, and adapters
    expected = plain.generate(prompts, params, use_tqdm=False)
    assert [facts(output) for output in outputs] == [facts(output) for output in expected]
    assert model.request_ids() == []


def test_leaving_the_loop_cancels(model: AsyncLLM) -> None:
    async def run() -> None:
        async for _ in model.generate("Once", ENDLESS, request_id="left"):
            assert model.request_ids() == ["left"]
            break
        gc.collect()
        assert model.request_ids() == []

    asyncio.run(run())


def test_closing_a_stream_cancels(model: AsyncLLM) -> None:
    async def run() -> None:
        async with model.generate("Once", ENDLESS) as stream:
            await anext(stream)
        assert model.request_ids() == []
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(run())


@pytest.mark.parametrize("whole", [False, True])
def test_cancelling_the_task_cancels(model: AsyncLLM, whole: bool) -> None:
    async def run() -> None:
        stream = model.generate("Once", ENDLESS)
        task = asyncio.ensure_future(stream.result() if whole else joined(stream))
        while not model.request_ids():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.request_ids() == []

    asyncio.run(run())


def test_abort_ends_with_what_there_is(model: AsyncLLM) -> None:
    async def run() -> None:
        streams = [model.generate("Once", ENDLESS, request_id=name) for name in ("a", "b", "c")]
        firsts = [await anext(stream) for stream in streams]
        model.abort("a")
        model.abort(["b", "unknown"])
        ended = [await joined(stream) for stream in streams[:2]]
        assert [output.outputs and output.outputs.finish_reason for output in ended] == [
            "abort"
        ] * 2
        assert model.request_ids() == ["c"]
        assert len(firsts) == 3
        model.abort()
        last = await joined(streams[2])
        assert last.error_msg == "Aborted"

    asyncio.run(run())


def test_abort_of_all_outputs_of_a_request(model: AsyncLLM) -> None:
    async def run() -> None:
        stream = model.generate(
            "Once", SamplingParams(n=2, max_tokens=500, ignore_eos=True), request_id="pair"
        )
        await anext(stream)
        assert model.request_ids() == ["pair_0", "pair_1"]
        model.abort("pair")
        reasons = [u.outputs.finish_reason async for u in stream if u.finished and u.outputs]
        assert reasons == ["abort", "abort"]

    asyncio.run(run())


def test_a_slow_reader_gets_merged_updates(model: AsyncLLM) -> None:
    async def run() -> None:
        params = SamplingParams(max_tokens=60, ignore_eos=True, seed=2)
        stream = model.generate("Once", params)
        first = await anext(stream)
        while model._runner.session.stats().running_requests:
            await asyncio.sleep(0.01)
        rest = [update async for update in stream]
        assert len(rest) == 1
        whole = await model.generate("Once", params).result()
        first.accumulate(rest[0])
        assert facts(first) == facts(whole)

    asyncio.run(run())


def test_bad_calls_raise(model: AsyncLLM) -> None:
    with pytest.raises(ValueError, match="one prompt a call, got 2"):
        model.generate(["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one conversation a call, got 2"):
        model.chat([HELLO, HELLO])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="sampling_params must be"):
        model.generate("a", {"max_tokens": 3})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exceeds maximum allowed value"):
        model.generate("a", SamplingParams(logprobs=1000))
    with pytest.raises(ValueError, match="enable_lora"):
        model.generate("a", lora_request=[])  # type: ignore[arg-type]
    wrong = SamplingParams(guided_decoding=GuidedDecodingParams(regex="("))
    with pytest.raises(ValueError):
        asyncio.run(model.generate("a", wrong).result())


def test_a_bad_prompt_ends_with_an_error(
    model: AsyncLLM, plain: LLM, caplog: pytest.LogCaptureFixture
) -> None:
    bad = "many words " * 3000
    with caplog.at_level(logging.WARNING, "headrace.failures"):
        expected = plain.generate(bad, use_tqdm=False)[0]
        output = asyncio.run(model.generate(bad).result())
    assert output.error_code == expected.error_code == 400
    assert output.error_msg == expected.error_msg
    assert facts(output) == facts(expected)
    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 2

    async def run() -> list[RequestOutput]:
        return [update async for update in model.generate(bad, SamplingParams(n=2))]

    assert [update.outputs and update.outputs.index for update in asyncio.run(run())] == [0, 1]


def test_raise_on_error() -> None:
    async def run() -> None:
        async with AsyncLLM.load(shipped_model(), raise_on_error=True) as llm:
            with pytest.raises(EngineError, match="max_model_len") as caught:
                await llm.generate("many words " * 3000).result()
            assert caught.value.error_code == 400
            assert (await llm.generate("Once", CASES[0]).result()).error_code == 200

    asyncio.run(run())


def test_ids_in_use_are_refused(model: AsyncLLM) -> None:
    async def run() -> None:
        stream = model.generate("Once", ENDLESS, request_id="same")
        await anext(stream)
        other = await model.generate("Once", ENDLESS, request_id="same").result()
        assert (other.error_code, other.error_msg) == (400, "request_id 'same' is already in use")
        assert model.request_ids() == ["same"]  # the first goes on
        await stream.aclose()

    asyncio.run(run())


def test_one_task_reads_a_stream(model: AsyncLLM) -> None:
    async def run() -> None:
        stream = model.generate("Once", ENDLESS)
        task = asyncio.ensure_future(anext(stream))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await anext(stream)
        await task
        with pytest.raises(RuntimeError, match="being read already"):
            await stream.results()
        await stream.aclose()

    asyncio.run(run())


def test_closing_while_requests_run() -> None:
    async def run() -> None:
        llm = await AsyncLLM.load(shipped_model())
        streams = [llm.generate(f"Once {i}", ENDLESS) for i in range(40)]
        late = llm.generate("Late")
        await anext(streams[0])
        tasks = [asyncio.ensure_future(joined(stream)) for stream in streams]
        await asyncio.sleep(0)
        await llm.close()
        ended = await asyncio.gather(*tasks)
        assert all(output.finished for output in ended)
        assert {o.outputs.finish_reason for o in ended if o.outputs} <= {"abort", "error"}
        with pytest.raises(RuntimeError, match="this AsyncLLM has been closed"):
            llm.generate("Once")
        assert "has been closed" in str((await late.result()).error_msg)
        await llm.close()

    asyncio.run(run())


def test_a_load_can_be_cancelled() -> None:
    async def run() -> None:
        task = asyncio.ensure_future(AsyncLLM.load(shipped_model())._run())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(FileNotFoundError):
            await AsyncLLM.load("./no/such/folder")

    asyncio.run(run())
    for thread in threading.enumerate():
        if thread.name == "headrace-load":
            thread.join(60)
            assert not thread.is_alive()


def test_a_forked_child_is_told(model: AsyncLLM) -> None:
    child = os.fork()
    if child == 0:
        try:
            model.generate("Once")
        except HeadraceError as error:
            os._exit(0 if error.code == "invalid_state" and "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_reprs_and_shared_methods(model: AsyncLLM, tmp_path: Path) -> None:
    assert repr(model).startswith("AsyncLLM(path=")
    assert model.get_tokenizer() is not None
    assert model.stats().finished_requests >= 0
    model.clear_prefix_cache()


def test_a_stream_is_watched_once(model: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.native.wakeup import Waker

    added = []
    real = Waker.add

    def add(waker: Waker, *how: Any) -> int:
        added.append(how)
        return real(waker, *how)

    monkeypatch.setattr(Waker, "add", add)

    async def run() -> int:
        return len([None async for _ in model.generate([5, 6], SamplingParams(max_tokens=30))])

    assert asyncio.run(run()) >= 1
    assert len(added) == 1  # however many updates there were


def test_a_stream_goes_on_on_another_loop(model: AsyncLLM, plain: LLM) -> None:
    params = SamplingParams(max_tokens=30, temperature=0.0)
    stream = model.generate([5, 6], params)

    async def read(most: int) -> str:
        text = ""
        async for update in stream:
            text += update.outputs.text
            most -= 1
            if not most:
                break
        return text

    text = asyncio.run(read(1)) + asyncio.run(read(1000))
    (want,) = plain.generate([[5, 6]], params, use_tqdm=False)
    assert text == want.outputs.text


def test_many_log_probabilities_are_taken_beside_the_event_loop(
    model: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    collect = Collector.collect

    def noted(self: Collector, *given: Any) -> dict[int, RequestOutput]:
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return collect(self, *given)

    monkeypatch.setattr(Collector, "collect", noted)
    params = SamplingParams(n=4, max_tokens=8, ignore_eos=True, logprobs=20)

    async def run(chosen: SamplingParams) -> int:
        updates = model.generate("Once", chosen)
        await updates._begin()  # the engine comes to its end before anything is read
        await asyncio.gather(
            *(live.handle.wait_async(60) for live in updates._collector.live.values())
        )
        threads.clear()
        return sum([len(update.outputs.logprobs or ()) async for update in updates])

    assert asyncio.run(run(params)) == 4 * 8
    assert threads[0] == "headrace-outputs"
    params.logprobs = 1
    assert asyncio.run(run(params)) == 4 * 8
    assert "headrace-outputs" not in threads

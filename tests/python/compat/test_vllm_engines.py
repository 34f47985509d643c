"""vLLM's engines, in the shape of its examples: async_llm_streaming, multilora, metrics."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from vllm_script import run_script

from headrace import (
    LLM,
    AsyncEngineArgs,
    AsyncLLMEngine,
    EngineArgs,
    EngineError,
    LLMEngine,
    RequestOutput,
    SamplingParams,
    shipped_model,
)
from headrace.compat.vllm.sampling_params import RequestOutputKind
from headrace.errors import UnsupportedError

sys.path.insert(0, str(ROOT / "tests/soak"))

from adapters import make_adapter

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
PROMPT = "User: What is 2 + 3?\nAssistant: "

STREAMING = """
import asyncio
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

async def streamed(engine, prompt, request_id):
    sampling_params = SamplingParams(
        max_tokens=24, temperature=0.8, top_p=0.95, seed=42, output_kind=RequestOutputKind.DELTA
    )
    texts, finished = [], False
    async for output in engine.generate(
        request_id=request_id, prompt=prompt, sampling_params=sampling_params
    ):
        assert output.request_id == request_id and output.prompt == prompt and not finished
        for completion in output.outputs:
            texts.append(completion.text)
        finished = output.finished
    assert finished
    return "".join(texts)

async def main():
    engine_args = AsyncEngineArgs(model="MODEL", enforce_eager=True, max_num_seqs=8)
    engine = AsyncLLM.from_engine_args(engine_args)
    try:
        prompts = ["Hello, my name is", "The future of AI is"]
        one_by_one = [await streamed(engine, p, f"example-{i}") for i, p in enumerate(prompts)]
        together = [streamed(engine, p, f"again-{i}") for i, p in enumerate(prompts)]
        assert await asyncio.gather(*together) == one_by_one and all(one_by_one)
    finally:
        engine.shutdown()
    assert engine.is_stopped

asyncio.run(main())
"""
MULTILORA = """
from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest

lora_path = "ADAPTER"
greedy = SamplingParams(temperature=0.0, logprobs=1, max_tokens=8)
test_prompts = [
    ("A robot may not injure a human being", greedy, None),
    ("To be or not to be,",
     SamplingParams(temperature=0.8, top_k=5, presence_penalty=0.2, max_tokens=8), None),
    ("A robot may not injure a human being", greedy, LoRARequest("sql-lora", 1, lora_path)),
    ("A robot may not injure a human being", greedy, LoRARequest("sql-lora2", 2, lora_path)),
]
engine_args = EngineArgs(model="MODEL", enable_lora=True, max_loras=1, max_lora_rank=8,
                         max_cpu_loras=2, max_num_seqs=256)
engine = LLMEngine.from_engine_args(engine_args)
request_id, finished = 0, {}
while test_prompts or engine.has_unfinished_requests():
    if test_prompts:
        prompt, sampling_params, lora_request = test_prompts.pop(0)
        engine.add_request(str(request_id), prompt, sampling_params, lora_request=lora_request)
        request_id += 1
    request_outputs: list[RequestOutput] = engine.step()
    for request_output in request_outputs:
        if request_output.finished:
            finished[request_output.request_id] = request_output.outputs[0]
assert sorted(finished) == ["0", "1", "2", "3"]
assert all(len(output.logprobs) == 8 for name, output in finished.items() if name != "1")
assert finished["2"].token_ids == finished["3"].token_ids != finished["0"].token_ids
llm = engine.llm
"""
METRICS = """
from vllm import LLM, SamplingParams
from vllm.v1.metrics.reader import Counter, Gauge, Histogram, Vector

llm = LLM(model="MODEL", disable_log_stats=False)
outputs = llm.generate(["Hello, my name is", "The future of AI is"], SamplingParams(max_tokens=4))
told = {}
for metric in llm.get_metrics():
    if isinstance(metric, Gauge):
        told[metric.name] = metric.value
    elif isinstance(metric, Counter):
        told[metric.name] = metric.value
    elif isinstance(metric, Vector):
        told[metric.name] = metric.values
    elif isinstance(metric, Histogram):
        told[metric.name] = metric.buckets
generated = sum(len(output.outputs[0].token_ids) for output in outputs)
assert told["headrace_engine_generated_tokens"] == generated
assert told["headrace_kv_blocks"] > 0 and told["headrace_running_requests"] == 0
"""
SCRIPTS = {"async_llm_streaming": STREAMING, "multilora": MULTILORA, "metrics": METRICS}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = json.loads((Path(shipped_model()) / "config.json").read_text())
    folder = tmp_path_factory.mktemp("adapters") / "one"
    make_adapter(folder, config, rank=4, seed=1)
    return folder


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs(name: str, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = SCRIPTS[name].replace("ADAPTER", str(adapter))
    run_script(name, code, Path(shipped_model()), monkeypatch)


@pytest.fixture(scope="module")
def engine() -> Iterator[AsyncLLMEngine]:
    args = AsyncEngineArgs(model=shipped_model(), max_model_len=512, num_threads=1)
    made = AsyncLLMEngine.from_engine_args(args, start_engine_loop=True)
    yield made
    made.shutdown()
    made.shutdown()


async def read(updates: AsyncIterator[RequestOutput]) -> list[RequestOutput]:
    return [update async for update in updates]


@pytest.mark.parametrize("n", [1, 3])
def test_kinds_of_updates(engine: AsyncLLMEngine, n: int) -> None:
    params = SamplingParams(temperature=0.9, seed=5, max_tokens=12, n=n, logprobs=1)

    async def told(kind: RequestOutputKind | None) -> list[RequestOutput]:
        chosen = params.clone()
        chosen.output_kind = kind
        return await read(engine.generate(PROMPT, chosen, f"r{kind}"))

    async def run() -> list[list[RequestOutput]]:
        return list(await asyncio.gather(*map(told, (None, DELTA, FINAL_ONLY))))

    grown, pieces, whole = asyncio.run(run())
    for updates in (grown, pieces, whole):
        assert [update.finished for update in updates].index(True) == len(updates) - 1
    (final,) = whole
    assert [output.index for output in final.outputs] == list(range(n))
    for output in final.outputs:
        mine = [update.outputs for update in pieces if update.outputs.index == output.index]
        assert "".join(piece.text for piece in mine) == output.text
        assert [token for piece in mine for token in piece.token_ids] == output.token_ids
        mine = [update.outputs for update in grown if update.outputs.index == output.index]
        assert mine[-1] == output
        assert all(len(part.logprobs) == len(part.token_ids) for part in mine)
        for part in mine:  # later updates have changed none of the earlier ones
            assert output.token_ids[: len(part.token_ids)] == part.token_ids
            assert part is mine[-1] or len(part.token_ids) < len(output.token_ids)


def test_what_fails_raises_and_leaving_cancels(engine: AsyncLLMEngine) -> None:
    endless = SamplingParams(max_tokens=400, ignore_eos=True)

    async def run() -> None:
        with pytest.raises(EngineError, match="too long"):
            await read(engine.generate("x" * 100_000, SamplingParams(), "a"))
        async with aclosing(engine.generate("Once", endless, "b")) as updates:
            async for update in updates:
                assert not update.finished
                break
        assert engine.llm.request_ids() == []
        told = []
        async for update in engine.generate("Once", endless, "b"):
            told.append(update)
            await engine.abort("b")
        assert told[-1].finished
        assert told[-1].outputs[0].finish_reason == "abort"
        await engine.check_health()
        assert await engine.reset_prefix_cache()
        assert engine.get_tokenizer() is not None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"priority": 1}, UnsupportedError, "priority=1: .*Engine.submit"),
        ({"data_parallel_rank": 1}, UnsupportedError, "data_parallel_rank=1"),
        ({"priorty": 1}, TypeError, "no argument 'priorty'"),
    ],
)
def test_arguments_are_refused_by_name(
    engine: AsyncLLMEngine, arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        asyncio.run(read(engine.generate("Once", SamplingParams(), "a", **arguments)))


def test_an_engine_that_was_shut_down_says_so() -> None:
    args = AsyncEngineArgs(model=shipped_model(), max_model_len=64, num_threads=1)
    with pytest.warns(UserWarning, match="start_engine_loop=False has no effect"):
        engine = AsyncLLMEngine.from_engine_args(args, start_engine_loop=False)
    assert engine.is_running
    engine.shutdown()
    assert engine.errored
    with pytest.raises(EngineError, match="shut down"):
        asyncio.run(engine.check_health())
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(read(engine.generate("Once", SamplingParams(), "a")))


def test_steps_have_the_kind_that_was_asked_for() -> None:
    args = EngineArgs(model=shipped_model(), max_model_len=128, num_threads=1)
    engine = LLMEngine.from_engine_args(args)
    with engine.llm:
        told: dict[str, list[str]] = {}
        for kind in (CUMULATIVE, DELTA, FINAL_ONLY):
            params = SamplingParams(temperature=0, max_tokens=20, output_kind=kind)
            engine.add_request(kind.name, PROMPT, params)
            told[kind.name] = []
        while engine.has_unfinished_requests():
            for output in engine.step():
                told[output.request_id].append(output.outputs[0].text)
        (whole,) = told["FINAL_ONLY"]
        assert told["CUMULATIVE"][-1] == "".join(told["DELTA"]) == whole
        assert all(whole.startswith(text) for text in told["CUMULATIVE"])


def test_each_name_is_one_class() -> None:
    from headrace.engine.arg_utils import EngineArgs as args_class
    from headrace.engine.async_llm_engine import AsyncLLMEngine as older
    from headrace.engine.request import RequestOutput as fastdeploys
    from headrace.v1.engine.async_llm import AsyncLLM as newer
    from headrace.v1.engine.llm_engine import LLMEngine as stepping

    assert older is newer is AsyncLLMEngine
    assert stepping is LLMEngine
    assert args_class is EngineArgs
    assert fastdeploys is RequestOutput


def test_there_is_no_profiler() -> None:
    with pytest.raises(UnsupportedError, match="start_profile: the engine has no profiler"):
        LLM.start_profile(object())  # type: ignore[arg-type]

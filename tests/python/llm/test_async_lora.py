"""Adapters of AsyncLLM: requests that find no place for theirs wait without holding up the loop."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from headrace import LLM, AsyncLLM, LoRARequest, RequestOutput, SamplingParams, shipped_model

sys.path.insert(0, str(ROOT / "tests/soak"))

from adapters import make_adapter

SHORT = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
ENDLESS = SamplingParams(max_tokens=1000, ignore_eos=True, seed=1)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[LoRARequest]:
    config = json.loads((Path(shipped_model()) / "config.json").read_text())
    made = []
    for number in (1, 2, 3):
        folder = tmp_path_factory.mktemp("adapters") / "one"
        make_adapter(folder, config, rank=4, seed=number)
        made.append(LoRARequest(f"a{number}", number, str(folder)))
    return made


@pytest.fixture(scope="module")
def model() -> Iterator[AsyncLLM]:
    llm = AsyncLLM(shipped_model(), enable_lora=True, max_loras=1, num_threads=1)
    yield llm
    asyncio.run(llm.close())


def test_three_adapters_take_turns_at_one_place(
    model: AsyncLLM, adapters: list[LoRARequest]
) -> None:
    async def run() -> list[RequestOutput]:
        calls = [
            model.generate("Once", SHORT, lora_request=lora).result()
            for lora in (None, *adapters) * 3
        ]
        return list(await asyncio.gather(*calls))

    outputs = [output.outputs.token_ids for output in asyncio.run(run())]
    with LLM(shipped_model(), enable_lora=True, max_loras=3, num_threads=1) as llm:
        expected = llm.generate(["Once"] * 4, SHORT, use_tqdm=False, lora_request=[None, *adapters])
    tokens = [output.outputs.token_ids for output in expected]
    assert outputs == tokens * 3
    assert len(set(map(tuple, tokens))) > 1


@pytest.mark.parametrize("how", ["abort", "cancel"])
def test_one_that_waits_can_be_ended(
    model: AsyncLLM, adapters: list[LoRARequest], how: str
) -> None:
    async def run() -> None:
        holder = model.generate("Once", ENDLESS, lora_request=adapters[0])
        await anext(holder)
        call = model.generate("Once", SHORT, lora_request=adapters[1], request_id="waits")
        waiting = asyncio.ensure_future(call.result())
        while "waits" not in model.request_ids():
            await asyncio.sleep(0.001)
        if how == "abort":
            model.abort("waits")
            output = await waiting
            assert (output.error_code, output.finished) == (499, True)
        else:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert model.request_ids() == [holder.request_id]
        await holder.aclose()
        after = await model.generate("Once", SHORT, lora_request=adapters[2]).result()
        assert after.error_code == 200

    asyncio.run(run())


def test_one_that_cannot_be_loaded_fails_its_own_request(model: AsyncLLM, tmp_path: Path) -> None:
    missing = LoRARequest("missing", 9, str(tmp_path / "none"))

    async def run() -> None:
        bad = model.generate("Once", SHORT, lora_request=missing, request_id="bad").result()
        output, other = await asyncio.gather(bad, model.generate("Once", SHORT).result())
        assert "adapter_config.json" in (output.error_msg or "")
        assert (output.error_code != 200, other.error_code) == (True, 200)
        assert model.request_ids() == []

    asyncio.run(run())

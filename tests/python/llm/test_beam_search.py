"""LLM.beam_search against a search by hand over whole distributions, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_folders import golden_folder

from headrace import LLM, AsyncLLM, BeamSearchParams, EngineError, SamplingParams

PROMPTS = [[3, 5, 7, 11], [40, 2, 9]]
OPTIONS: dict[str, Any] = {"kv_cache_bytes": 4 << 20, "num_threads": 1, "dtype": "float32"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_folder("llama", tmp_path_factory.mktemp("beams") / "m")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), max_model_len=64, **OPTIONS) as own:
        yield own


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[LLM]:
    """Tells whole distributions; no prefix is cached."""
    with LLM(
        str(folder),
        max_model_len=64,
        enable_logprob=True,
        max_logprobs=-1,
        enable_prefix_caching=False,
        **OPTIONS,
    ) as own:
        yield own


def by_hand(
    oracle: LLM, prompt: list[int], width: int, steps: int, ends: set[int], penalty: float
) -> list[tuple[list[int], float]]:
    """vLLM's search, written down once more."""
    params = SamplingParams(max_tokens=1, min_tokens=0, logprobs=-1, temperature=0)

    def score(beam: tuple[list[int], float]) -> float:
        length = len(beam[0]) - (beam[0][-1] in ends)
        return float(beam[1] / length**penalty)

    beams: list[tuple[list[int], float]] = [(prompt, 0.0)]
    complete: list[tuple[list[int], float]] = []
    for _ in range(steps):
        following: list[tuple[list[int], float]] = []
        outputs = oracle.generate([ids for ids, _ in beams], params, use_tqdm=False)
        for (ids, total), output in zip(beams, outputs, strict=True):
            rows = output.outputs.logprobs
            assert rows is not None
            likely = sorted(rows[0].items(), key=lambda item: -item[1].logprob)[: 2 * width]
            following += [([*ids, token], total + known.logprob) for token, known in likely]
        complete += [beam for beam in following if beam[0][-1] in ends]
        going_on = [beam for beam in following if beam[0][-1] not in ends]
        beams = sorted(going_on, key=score, reverse=True)[:width]
    return sorted([*complete, *beams], key=score, reverse=True)[:width]


@pytest.mark.parametrize(("width", "penalty"), [(1, 1.0), (3, 1.0), (3, 0.0), (4, 3.0)])
def test_it_finds_what_a_search_by_hand_finds(
    llm: LLM, oracle: LLM, width: int, penalty: float
) -> None:
    params = BeamSearchParams(width, 4, ignore_eos=True, length_penalty=penalty)
    for prompt, output in zip(PROMPTS, llm.beam_search(PROMPTS, params), strict=True):
        expected = by_hand(oracle, prompt, width, 4, set(), penalty)
        assert [found.tokens for found in output.sequences] == [ids for ids, _ in expected]
        for found, (_, total) in zip(output.sequences, expected, strict=True):
            assert found.cum_logprob == pytest.approx(total, abs=1e-6)
            assert found.finish_reason == "length"
            ids = found.tokens[len(prompt) :]
            values = [row[token].logprob for token, row in zip(ids, found.logprobs, strict=True)]
            assert sum(values) == pytest.approx(total, abs=1e-6)


def test_one_beam_is_greedy(llm: LLM) -> None:
    greedy = llm.generate(
        PROMPTS, SamplingParams(temperature=0, max_tokens=5, ignore_eos=True), use_tqdm=False
    )
    found = llm.beam_search(PROMPTS, BeamSearchParams(1, 5, ignore_eos=True), concurrency_limit=1)
    assert [output.sequences[0].tokens for output in found] == [
        [*prompt, *output.outputs.token_ids] for prompt, output in zip(PROMPTS, greedy, strict=True)
    ]


def test_end_tokens_complete_beams(oracle: LLM, folder: Path, tmp_path: Path) -> None:
    """Of which the model has several: the likely second tokens."""
    first = by_hand(oracle, PROMPTS[0], 3, 2, set(), 1.0)
    ends = {ids[-1] for ids, _ in first[:2]}
    own = tmp_path / "m"
    own.mkdir()
    for path in folder.iterdir():
        (own / path.name).symlink_to(path)
    (own / "generation_config.json").unlink(missing_ok=True)
    (own / "generation_config.json").write_text(json.dumps({"eos_token_id": sorted(ends)}))
    with LLM(str(own), max_model_len=64, **OPTIONS) as llm:
        known = set(llm.model_info.eos_token_ids)
        assert ends <= known
        (output,) = llm.beam_search(PROMPTS[:1], BeamSearchParams(3, 4))
        expected = by_hand(oracle, PROMPTS[0], 3, 4, known, 1.0)
        assert [found.tokens for found in output.sequences] == [ids for ids, _ in expected]
        for found in output.sequences:
            stops = found.tokens[-1] in known
            assert found.finish_reason == ("stop" if stops else "length")
            assert found.stop_reason == (found.tokens[-1] if stops else None)
        assert any(found.finish_reason == "stop" for found in output.sequences)
        assert llm.request_ids() == []


def test_what_fails_costs_the_others_nothing(llm: LLM, folder: Path) -> None:
    prompts = [PROMPTS[0], list(range(70)), [1 << 30]]
    found = llm.beam_search(prompts, BeamSearchParams(2, 2, ignore_eos=True))
    assert [output.error_code for output in found] == [200, 400, 400]
    assert [len(output.sequences) for output in found] == [2, 0, 0]
    assert "max_model_len" in str(found[1].error_msg)
    # The context ends an output, too.
    (output,) = llm.beam_search([[1] * 62], BeamSearchParams(2, 9, ignore_eos=True))
    assert [len(sequence.tokens) for sequence in output.sequences] == [64, 64]
    with pytest.raises(TypeError, match="params must be a BeamSearchParams"):
        llm.beam_search(PROMPTS, SamplingParams())  # type: ignore[arg-type]
    for limit in (0, -1):
        with pytest.raises(ValueError, match=f"concurrency_limit must be at least 1, got {limit}"):
            llm.beam_search(PROMPTS, BeamSearchParams(2, 2), concurrency_limit=limit)
    with (
        LLM(str(folder), max_model_len=64, raise_on_error=True, **OPTIONS) as raising,
        pytest.raises(EngineError, match="max_model_len"),
    ):
        raising.beam_search(prompts, BeamSearchParams(2, 2))


def test_async_llm_finds_the_same(llm: LLM, folder: Path) -> None:
    params = BeamSearchParams(3, 4, ignore_eos=True)

    async def search() -> None:
        async with AsyncLLM.load(str(folder), max_model_len=64, **OPTIONS) as own:
            found = await asyncio.gather(*(own.beam_search(ids, params) for ids in PROMPTS))
            assert found == llm.beam_search(PROMPTS, params)
            outputs = await own.beam_search(PROMPTS[0], params).results()
            assert [output.outputs.index for output in outputs] == [0, 1, 2]
            for output, sequence in zip(outputs, found[0].sequences, strict=True):
                assert PROMPTS[0] + output.outputs.token_ids == sequence.tokens
                assert output.outputs.logprobs == sequence.logprobs
            failed = await own.beam_search(list(range(70)), params)
            assert (failed.sequences, failed.error_code) == ([], 400)
            (failed_output,) = await own.beam_search(list(range(70)), params).results()
            assert failed_output.error_msg == failed.error_msg
            asked = own.beam_search(PROMPTS[0], params)
            await asked
            with pytest.raises(RuntimeError, match="awaited already"):
                await asked
            with pytest.raises(TypeError, match="params must be a BeamSearchParams"):
                own.beam_search(PROMPTS[0], SamplingParams())  # type: ignore[arg-type]

    asyncio.run(search())


def test_a_cancelled_search_ends(folder: Path) -> None:
    async def search() -> None:
        async with AsyncLLM.load(str(folder), max_model_len=4096, **OPTIONS) as own:
            params = BeamSearchParams(2, 4000, ignore_eos=True)
            task = asyncio.ensure_future(own.beam_search(PROMPTS[0], params).results())
            while own.stats().generated_tokens < 4:
                await asyncio.sleep(0)
            assert own._runner.streams()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not own._runner.streams()
            while own.request_ids():
                await asyncio.sleep(0)
            for name in (None, "mine"):
                search = own.beam_search(PROMPTS[0], params, request_id="mine")
                task = asyncio.ensure_future(search.results())
                while not own.request_ids():
                    await asyncio.sleep(0)
                own.abort(name)
                (output,) = await task
                assert (output.outputs.finish_reason, output.error_msg) == ("abort", "Aborted")

    asyncio.run(asyncio.wait_for(search(), 60))

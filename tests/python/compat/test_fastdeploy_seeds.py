"""FastDeploy's rules for seeds, which hold under its names alone."""

from __future__ import annotations

import copy
import pickle

import pytest

import headrace
from headrace.compat.fastdeploy import SamplingParams
from headrace.options.sampling_params import MAX_SEED, is_default


def test_a_seed_is_drawn_when_the_object_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams()
    drawn = [SamplingParams().seed for _ in range(8)]
    assert len(set(drawn)) == 8
    assert all(isinstance(seed, int) and 0 <= seed <= MAX_SEED for seed in drawn)
    assert is_default(params.seed)
    assert not is_default(SamplingParams(seed=int(str(drawn[0]))).seed)  # as from a log
    assert copy.copy(params).seed == pickle.loads(pickle.dumps(params)).seed == params.seed
    monkeypatch.setenv("FD_DETERMINISTIC_MODE", "1")
    assert (SamplingParams().seed, SamplingParams(seed=7).seed) == (42, 7)
    assert headrace.SamplingParams().seed is None


def test_a_seed_holds_for_every_prompt(llm: headrace.LLM) -> None:
    params = SamplingParams(n=2)
    outputs = llm.generate(["a", "b"], params, use_tqdm=False)
    assert params.seed is not None
    assert [output.outputs.seed for output in outputs] == [params.seed, params.seed + 1] * 2

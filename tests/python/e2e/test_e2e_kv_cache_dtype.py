"""Quantized KV caches with the shipped model: the same tokens every time, and good ones."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import pytest
from conftest import ROOT

from headrace import LLM, SamplingParams, shipped_model

TINY = ROOT / "examples" / "tiny_model"
SEED = 1101


def dialogues(count: int, together: int) -> list[str]:
    """Texts of `together` fresh dialogues each."""
    sys.path.insert(0, str(TINY))
    try:
        from dialogues import training_text  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(TINY))
    rng = random.Random(SEED)
    return ["".join(training_text(rng) for _ in range(together)) for _ in range(count)]


def answers(dtype: str, rounds: int = 1, crowded: bool = False, **options: Any) -> list[Any]:
    """Tokens and log-probabilities of the last round; of a later one prefixes are in the cache."""
    params = SamplingParams(temperature=0.7, seed=5, max_tokens=70, logprobs=1, ignore_eos=True)
    prompts = dialogues(12, 4)
    out: list[Any] = []
    with LLM(
        shipped_model(), enable_logprob=True, kv_cache_dtype=dtype, max_model_len=512, **options
    ) as llm:
        for _ in range(rounds):
            results = llm.generate(prompts, params, use_tqdm=False)
        preempted = 0
        for result in results:
            assert result.outputs is not None
            assert result.metrics is not None
            preempted += result.metrics.preempted_count
            logprobs = [
                step[token].logprob
                for step, token in zip(
                    result.outputs.logprobs or [], result.outputs.token_ids, strict=True
                )
            ]
            out.append((list(result.outputs.token_ids), logprobs))
    assert (preempted > 0) == crowded
    return out


@pytest.mark.parametrize("dtype", ["int8", "fp8", "uint4"])
def test_the_same_tokens_every_time(dtype: str) -> None:
    alone = answers(dtype, max_num_seqs=1, num_threads=1, enable_prefix_caching=False)
    assert len({tuple(tokens) for tokens, _ in alone}) > 6, f"seed {SEED}"
    assert alone != answers("auto", max_num_seqs=1, num_threads=1)
    # Chunks of prompts, other blocks, more threads, prefixes from the cache.
    assert alone == answers(
        dtype, rounds=2, max_num_batched_tokens=53, max_num_seqs=8, block_size=16, num_threads=2
    )
    # Room for a few requests: others are preempted and computed again.
    assert alone == answers(
        dtype, crowded=True, num_gpu_blocks_override=34, block_size=16, num_threads=2
    )


def loss(dtype: str, texts: list[str]) -> float:
    """Mean negative log-probability of the texts' tokens."""
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    total, count = 0.0, 0
    with LLM(shipped_model(), enable_logprob=True, kv_cache_dtype=dtype) as llm:
        for result in llm.generate(texts, params, use_tqdm=False):
            assert result.prompt_token_ids is not None
            assert result.prompt_logprobs is not None
            for token, step in zip(result.prompt_token_ids, result.prompt_logprobs, strict=True):
                if step is not None:
                    total -= step[token].logprob
                    count += 1
    assert count > 4000
    return total / count


def test_perplexity() -> None:
    texts = dialogues(24, 6)
    exact = loss("auto", texts)
    assert abs(math.exp(loss("int8", texts) - exact) - 1) < 0.003, f"seed {SEED}"
    assert abs(math.exp(loss("fp8", texts) - exact) - 1) < 0.01, f"seed {SEED}"
    assert abs(math.exp(loss("uint4", texts) - exact) - 1) < 0.02, f"seed {SEED}"

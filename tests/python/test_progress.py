"""What the progress bar of a call shows."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace import LLM, SamplingParams
from headrace.progress import Progress

PROMPTS = ["one two three four", "five six seven", "eight nine ten"]


def widest(shown: str) -> int:
    return max(map(len, re.split("[\r\n]", shown)))


def test_it_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    clock = iter([100.0, 110.0])
    monkeypatch.setattr("headrace.progress.time.monotonic", lambda: next(clock, 110.0))
    progress = Progress(12345, enabled=True)
    progress.update(2345, 123456789, 98765432)
    progress.close()
    assert "in 12.3M, out 9.88M tok/s" in stderr.getvalue()
    assert widest(stderr.getvalue()) < 80


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """What the bars are told: finished, input tokens, output tokens."""
    seen: list[tuple[int, int, int]] = []

    class Recorder(Progress):
        def update(self, finished: int, input_tokens: int, output_tokens: int) -> None:
            seen.append((finished, input_tokens, output_tokens))

    monkeypatch.setattr("headrace.llm.Progress", Recorder)
    return seen


def test_prompts_count_once_they_are_computed(
    fake_engine: Any, make_llm: Callable[..., LLM], updates: list[tuple[int, int, int]]
) -> None:
    def script(prompt: list[int], output: list[int], seed: int) -> int:
        """The second prompt's tokens come once the first one's end has been told."""
        deadline = time.monotonic() + 60
        while prompt != first_prompt and not any(u[0] for u in updates):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return 40

    llm = make_llm(max_num_seqs=1)
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    first_prompt = tokenizer.encode(PROMPTS[0])
    fake_engine.script = script
    outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=2), use_tqdm=False)
    told = next(update for update in updates if update[0])
    assert told == (1, len(first_prompt), 2)
    assert updates[-1][1:] == (sum(len(output.prompt_token_ids) for output in outputs), 6)


def test_what_the_cache_held_is_not_counted(
    fake_engine: Any, llm: LLM, updates: list[tuple[int, int, int]]
) -> None:
    fake_engine.prefix_hits = 2
    (output,) = llm.generate(PROMPTS[:1], use_tqdm=False)
    assert output.num_cached_tokens == 2
    assert updates[-1][1] == len(output.prompt_token_ids) - 2

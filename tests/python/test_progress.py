"""What the progress bar of a call shows."""

from __future__ import annotations

import io
import re
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
    progress = Progress(12345, enabled=True)
    progress._start -= 10
    progress.update(2345, 123456789, 98765432)
    progress.close()
    assert re.search(r"in 12.\dM, out 9.\d+M tok/s", stderr.getvalue())
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
    make_llm: Callable[..., LLM], updates: list[tuple[int, int, int]]
) -> None:
    llm = make_llm(max_num_seqs=1)
    outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=2), use_tqdm=False)
    lengths = [len(output.prompt_token_ids) for output in outputs]
    first = next(update for update in updates if update[0])
    assert first[1] < sum(lengths)  # the others wait
    assert updates[-1][1:] == (sum(lengths), 6)


def test_what_the_cache_held_is_not_counted(
    fake_engine: Any, llm: LLM, updates: list[tuple[int, int, int]]
) -> None:
    fake_engine.prefix_hits = 2
    (output,) = llm.generate(PROMPTS[:1], use_tqdm=False)
    assert output.num_cached_tokens == 2
    assert updates[-1][1] == len(output.prompt_token_ids) - 2

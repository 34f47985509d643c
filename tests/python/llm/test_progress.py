"""What the progress bar of a call shows. One that can't be shown costs no call its results."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM, SamplingParams
from headrace.llm.progress import LoadBar, Progress

PROMPTS = ["one two three four", "five six seven", "eight nine ten"]


def widest(shown: str) -> int:
    return max(map(len, re.split("[\r\n]", shown)))


def test_it_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    clock = iter([100.0, 110.0])
    monkeypatch.setattr("headrace.llm.progress.time.monotonic", lambda: next(clock, 110.0))
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

    monkeypatch.setattr("headrace.llm.llm.Progress", Recorder)
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


class FailsLater(io.StringIO):
    """A stream that takes so many writes."""

    def __init__(self, writes: int, error: Exception) -> None:
        super().__init__()
        self.left, self.error = writes, error

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return len(text)


class Screen(io.StringIO):
    """A terminal, which may break after so many writes."""

    writes = 1 << 30

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes -= 1
        if self.writes < 0:
            raise BrokenPipeError
        return super().write(text)


def open_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """stderr, by the test itself, since pytest replaces what a fixture has set; no bar waits."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("headrace.llm.progress._LOAD_DELAY", 0)
    return screen


def test_a_load_shows_a_bar_on_a_terminal(
    make_llm: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = open_screen(monkeypatch)
    make_llm()
    shown = screen.getvalue()
    assert "Loading the model: " in shown
    assert shown.rpartition("\r")[0].endswith(" ")  # it is wiped away
    assert widest(shown) <= 80


def test_a_load_shows_nothing_elsewhere(
    make_llm: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = open_screen(monkeypatch)
    monkeypatch.setattr(screen, "isatty", lambda: False)
    make_llm()
    monkeypatch.setattr(sys, "stderr", None)
    make_llm()
    assert screen.getvalue() == ""


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_broken_terminal_costs_no_load(
    writes: int, make_llm: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_screen(monkeypatch).writes = writes
    assert make_llm().generate("a", use_tqdm=False)[0].outputs.text == "a"


def test_a_terminal_that_breaks_holds_up_no_other_thread(
    make_llm: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar that failed was written by the loading thread, which is gone."""
    open_screen(monkeypatch).writes = 0
    make_llm()
    screen = open_screen(monkeypatch)
    make_llm().generate("a", use_tqdm=True)
    assert "Prompts" in screen.getvalue()


def test_a_bar_for_each_stage_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = open_screen(monkeypatch)
    bar = LoadBar()
    tell = bar.progress
    assert tell is not None
    for step in [("opening", 0, 0), ("checking", 0, 4096), ("checking", 4096, 4096),
                 ("weights", 1024, 2048), ("reserving", 0, 0)]:  # fmt: skip
        tell(*step)
    bar.close()
    shown = screen.getvalue()
    assert "Checking the model:   0%" in shown
    assert "/4.00k [" in shown
    assert "Loading the model:" in shown.partition("Checking")[2]
    assert "opening" not in shown
    assert "reserving" not in shown


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "error",
    [
        BrokenPipeError(),
        OSError(28, "No space left on device"),
        ValueError("I/O operation on closed file."),
        UnicodeEncodeError("ascii", "█", 0, 1, "ordinal not in range"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("stream", [False, True])
def test_results_come_back(
    writes: int, error: Exception, stream: bool, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", FailsLater(writes, error))
    if stream:
        texts = [""] * 3
        for step in llm.generate(["a", "bc", "d"], stream=True):
            for place, output in enumerate(step):
                if output is not None and output.outputs is not None:
                    texts[place] += output.outputs.text or ""
        assert texts == ["a", "bc", "d"]
    else:
        outputs = llm.generate(["a", "bc", "d"])
        assert [output.outputs.text for output in outputs if output.outputs] == ["a", "bc", "d"]
    assert llm.request_ids() == []


def test_an_error_of_the_call_is_not_hidden(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FailsLater(1, BrokenPipeError()))
    with pytest.raises(TypeError, match="sampling_params must be"):
        llm.generate("a", 5)  # type: ignore[call-overload]


@pytest.mark.parametrize("how", ["closed", "broken", "none"])
def test_of_a_program(how: str, toy_folder: Path) -> None:
    code = f"""
import os, sys
sys.path[:] = {sys.path!r}
import fake_core
fake_core.install()
from headrace import LLM
with LLM({str(toy_folder)!r}) as llm:
    if {how!r} == "closed":
        sys.stderr.close()
    if {how!r} == "none":
        sys.stderr = None
    outputs = llm.generate(["one two", "three"])
    print([output.outputs.text for output in outputs], flush=True)
os._exit(0)  # the interpreter itself complains of such a stream at its end
"""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=write if how == "broken" else subprocess.DEVNULL,
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stdout == "['one two', 'three']\n"
    assert done.returncode == 0

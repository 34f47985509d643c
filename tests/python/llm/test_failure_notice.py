"""A call whose prompts fail says so once, in the log."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import LLM, EngineError, SamplingParams


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The warnings since the last look."""

    def take() -> list[str]:
        lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        caplog.clear()
        return lines

    return take


def test_once_per_call(llm: LLM, told: Callable[[], list[str]]) -> None:
    llm.generate(["one", "", "two"], use_tqdm=False)
    (line,) = told()
    assert line.startswith("1 of 3 prompts failed: prompts[1]: Invalid input")
    llm.generate(["", "one", ""], use_tqdm=False)
    (line,) = told()
    assert line.startswith("2 of 3 prompts failed: prompts[0]: Invalid input")
    assert line.endswith("(see error_msg of the outputs for the others)")
    llm.generate("", use_tqdm=False)
    (line,) = told()
    assert line.startswith("the prompt failed: Invalid input")
    llm.generate(["one", "two"], use_tqdm=False)
    assert told() == []


def test_several_outputs_of_a_prompt_count_once(llm: LLM, told: Callable[[], list[str]]) -> None:
    llm.generate(["one", ""], SamplingParams(n=3), use_tqdm=False)
    (line,) = told()
    assert line.startswith("1 of 2 prompts failed: prompts[1]: ")


def test_a_stream_tells_at_its_end(llm: LLM, told: Callable[[], list[str]]) -> None:
    stream = llm.generate(["one two", ""], stream=True)
    next(stream)
    assert told() == []
    list(stream)
    assert len(told()) == 1
    assert list(stream) == []
    assert told() == []


def test_an_exception_says_it_already(
    make_llm: Callable[..., LLM], told: Callable[[], list[str]]
) -> None:
    with pytest.raises(EngineError):
        make_llm(raise_on_error=True).generate(["one", ""], use_tqdm=False)
    assert told() == []


def test_a_long_message_is_cut(llm: LLM, told: Callable[[], list[str]]) -> None:
    llm.chat([{"role": "user", "content": "hi"}], use_tqdm=False)
    template = "{{ raise_exception('no ' * 1000) }}"
    llm.chat([{"role": "user", "content": "hi"}], chat_template=template, use_tqdm=False)
    (line,) = told()
    assert len(line) < 250


def test_it_reaches_standard_error_by_itself(toy_folder: Path) -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import fake_core; fake_core.install()\n"
        "from headrace import LLM\n"
        f"LLM({str(toy_folder)!r}).generate(['one', ''], use_tqdm=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.startswith("1 of 2 prompts failed: prompts[1]: Invalid input")

"""A progress bar that can't be shown costs no call its results."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import LLM

HERE = Path(__file__).parent


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
sys.path[:0] = {[str(HERE), str(HERE.parents[1] / "python")]!r}
import fake_core
sys.modules["headrace._core"] = fake_core
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

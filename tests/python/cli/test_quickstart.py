"""examples/quickstart says what it does and shows that it goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

PIP = """#!/bin/sh
echo "  [1/40] Building CXX object a.o"
sleep {pause}
echo "  [40/40] Linking"
exit {status}
"""
HEADRACE = """#!/bin/sh
echo "$@: $(cat)"
"""


def quickstart(
    folder: Path, *words: str, pause: float = 0, status: int = 0, terminal: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs a copy of it where pip and headrace only pretend."""
    (folder / "examples").mkdir()
    script = shutil.copy(ROOT / "examples" / "quickstart", folder / "examples")
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in (("python", PIP.format(pause=pause, status=status)), ("headrace", HEADRACE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    command = [script, *words]
    if terminal:
        command = ["script", "-qec", " ".join(command), os.devnull]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_it_tells_its_steps(tmp_path: Path) -> None:
    done = quickstart(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line[:4] for line in lines[:3]] == ["1/3 ", "2/3 ", "3/3 "]
    assert "several minutes" in lines[1]
    assert "chat --temperature 0: What is 12 + 7?" in lines
    assert lines[-1].startswith("Go on with .venv/bin/headrace chat")
    assert "[40/40] Linking" in (tmp_path / "build" / "quickstart.log").read_text()


def test_a_question_of_your_own(tmp_path: Path) -> None:
    done = quickstart(tmp_path, "Who are you?")
    assert "chat --temperature 0: Who are you?" in done.stdout


@pytest.mark.skipif(shutil.which("script") is None, reason="needs script(1) for a terminal")
def test_a_terminal_shows_that_it_goes_on(tmp_path: Path) -> None:
    done = quickstart(tmp_path, pause=3, terminal=True)
    assert done.stdout.count("    1 of 40 steps, ") >= 1


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path) -> None:
    done = quickstart(tmp_path, status=1)
    assert done.returncode == 1
    assert "[40/40] Linking" in done.stdout
    assert "The installation failed" in done.stderr
    assert "chat" not in done.stdout

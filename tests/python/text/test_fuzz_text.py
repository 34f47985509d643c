"""A little of tests/fuzz/fuzz_text.py in every run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "fuzz" / "fuzz_text.py"


def test_a_short_run() -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "--templates", "150", "--files", "300", "--seed", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all good\n")

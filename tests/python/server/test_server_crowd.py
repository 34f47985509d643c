"""A short turn of tests/soak/serving.py: 256 streams at once, a third of which misbehave."""

from __future__ import annotations

import os
import subprocess
import sys

from conftest import ROOT


def test_a_crowd_loses_nothing() -> None:
    command = [sys.executable, str(ROOT / "tests/soak/serving.py"), "--minutes", "0.2"]
    done = subprocess.run(
        [*command, "--streams", "256", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, 0 failed" in done.stdout

"""The examples run as printed."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT


def test_async_engine() -> None:
    script = ROOT / "examples" / "async_engine.py"
    code = (
        f"import runpy, sys; sys.path[:0] = {sys.path!r}; sys.argv[1:] = []; "
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    shown, _, answers = done.stdout.partition("\n\n")
    assert "Paris" in answers
    for number in (1, 2, 3):
        assert f"[{number}] " in shown
        assert any(
            line.startswith(f"[{number}]") and "tokens" in line for line in shown.split("\n")
        )

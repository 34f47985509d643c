"""Python programs with little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SUPPORT = Path(__file__).resolve().parent
_PACKAGE = _SUPPORT.parents[2] / "python"


def in_a_small_process(code: str, megabytes: int = 512) -> str:
    """The output of a Python program whose address space is limited."""
    start = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({megabytes << 20}, {megabytes << 20}))
sys.path[:0] = {[str(_SUPPORT), str(_PACKAGE)]!r}
"""
    done = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

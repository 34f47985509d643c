"""Python programs with little memory."""

from __future__ import annotations

import subprocess
import sys


def in_a_small_process(code: str, megabytes: int = 512) -> str:
    """The output of a Python program whose address space is limited."""
    start = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({megabytes << 20}, {megabytes << 20}))
sys.path[:] = {sys.path!r}
"""
    done = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

"""What a limited process is asked in test_limited_processes.py: to keep bytes."""

from __future__ import annotations

import os

_kept: list[bytes] = []


def answer(request: bytearray) -> bytes:
    """request: how many bytes to keep, in digits. Gives the id of the process."""
    _kept.append(b"x" * int(request))
    return str(os.getpid()).encode()

"""Is there memory for what can't tell that it got none: a thread that the interpreter starts?"""

from __future__ import annotations

import mmap
from pathlib import Path

_SMALL = 16 << 20  # not worth a look at the machine


def has_room(size: int) -> bool:
    """Whether `size` bytes can be had now: of address space and, as far as the system tells, of
    memory. Somebody else may take them in the next moment."""
    try:
        mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, OverflowError, MemoryError):
        return False
    return size <= _SMALL or size <= _available()


def _available() -> float:
    return min(_machine_bytes(), _container_bytes())


def _machine_bytes() -> float:
    for line in _lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return float("inf")


def _container_bytes() -> float:
    """Of control groups of version 2, as a container sees its own."""
    group = "/sys/fs/cgroup/memory"
    most, used = _lines(f"{group}.max"), _lines(f"{group}.current")
    if not most or not used or not most[0].isdecimal() or not used[0].isdecimal():
        return float("inf")
    # What is cached of files counts as used, and is given up when memory is asked for.
    fields = (line.split() for line in _lines(f"{group}.stat"))
    cached = sum(int(value) for name, value in fields if name == "inactive_file")
    return int(most[0]) - int(used[0]) + cached


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []

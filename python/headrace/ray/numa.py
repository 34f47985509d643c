"""A NUMA node for each engine of a machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

from headrace.quoting import quoted

_SYSTEM = Path("/sys/devices/system/node")
_SECONDS_TO_WAIT = 30.0  # for an actor that has died to let its node go
_taken: list[int] = []  # locked files, which the system lets go when this process ends


def bind_to_node() -> int:
    """This thread, and those it starts, stay on the CPUs of a node that no other process has.

    Returns how many CPUs it has. The node stays taken until this process ends.

    Raises RuntimeError if all nodes are taken.
    """
    nodes = node_cpus()
    deadline = time.monotonic() + _SECONDS_TO_WAIT
    while True:
        for number, cpus in enumerate(nodes):
            if _take(number):
                os.sched_setaffinity(0, cpus)
                return len(cpus)
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"the {len(nodes)} NUMA nodes of this machine have an engine each already: ask "
                f"for num_cpus={max(map(len, nodes))}, so that Ray places no more here"
            )
        time.sleep(0.2)


def node_cpus() -> list[set[int]]:
    """The CPUs of each node that this process may use; nodes without any are left out.

    HEADRACE_NUMA_NODES ("0-3;4-7") says them instead of the system. Raises ValueError.
    """
    given = os.environ.get("HEADRACE_NUMA_NODES")
    if given:
        texts = given.split(";")
    else:
        files = sorted(_SYSTEM.glob("node[0-9]*/cpulist"), key=lambda f: int(f.parent.name[4:]))
        texts = [file.read_text().strip() for file in files]
    allowed = os.sched_getaffinity(0)
    nodes = [cpus for text in texts if (cpus := _cpus(text) & allowed)]
    return nodes or [allowed]


def _cpus(text: str) -> set[int]:
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.strip().partition("-")
        try:
            begin, end = int(first), int(last if dash else first)
        except ValueError:
            raise ValueError(f"CPUs of a NUMA node are like 0-3,8, got {quoted(text)}") from None
        if not 0 <= begin <= end < 1 << 16:
            raise ValueError(f"CPUs of a NUMA node are like 0-3,8, got {quoted(text)}")
        cpus.update(range(begin, end + 1))
    return cpus


def _take(number: int) -> bool:
    path = Path(tempfile.gettempdir()) / f"headrace_numa_{os.getuid()}_{number}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _taken.append(file)
    return True

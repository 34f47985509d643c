"""The other end of processes.py: a process that answers requests within limits.

Started by path and function name (see start.py); reads requests from its standard input, a socket,
and writes the answers there. It dies of what goes beyond its limits, and when its parent is gone.
It ends by itself when what earlier requests have left, in caches, is as much as one may take.
"""

from __future__ import annotations

import contextlib
import importlib
import resource
import signal
import socket
import sys
from collections.abc import Callable

from headrace.limited.wire import ANSWER, COST, ERROR, MEMORY, READY, receive, send

_ANY_SIZE = 1 << 62  # the parent has its own limit


class Refused(Exception):
    """What a handler raises for a request that it refuses; the parent gets the message."""


def main() -> None:
    """argv: the module whose `answer` is asked, and bytes of memory that a request may take."""
    answer: Callable[[bytearray], bytes] = importlib.import_module(sys.argv[-2]).answer
    parent = socket.socket(fileno=0)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory, start = int(sys.argv[-1]), _address_space()
    send(parent, READY, b"")
    with contextlib.suppress(ConnectionError, EOFError):
        while (used := _address_space()) <= start + memory:
            _, request = receive(parent, _ANY_SIZE)
            seconds, more = COST.unpack_from(request)
            del request[: COST.size]
            _limit(used + memory + more)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            kind, data = _answered(answer, request)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _limit(resource.RLIM_INFINITY)
            send(parent, kind, data)
            del data, request


def _answered(answer: Callable[[bytearray], bytes], request: bytearray) -> tuple[bytes, bytes]:
    try:
        return ANSWER, answer(request)
    except Refused as error:
        return ERROR, str(error).encode("utf-8", "surrogatepass")
    except MemoryError:
        return MEMORY, b""


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(wanted: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        wanted = most if wanted == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, most))

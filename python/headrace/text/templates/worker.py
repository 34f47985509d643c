"""The other end of process.py: a process that renders chat templates within limits.

Started by path and function name (see process.py); reads requests from its standard input, a
socket, and writes the answers there. It dies of what goes beyond its limits, and when its parent is
gone.
"""

from __future__ import annotations

import contextlib
import pickle
import resource
import signal
import socket
import sys

from headrace.errors import TemplateError
from headrace.text.templates.sandbox import render, variables_read
from headrace.text.templates.wire import ERROR, MEMORY, READY, TEXT, receive, send

_ANY_SIZE = 1 << 62  # the parent has its own limit


def main() -> None:
    """argv: memory in bytes beyond what the process has at its start, CPU seconds per template."""
    memory, seconds = int(sys.argv[-2]), float(sys.argv[-1])
    parent = socket.socket(fileno=0)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    _limit(memory)
    send(parent, READY, b"")
    with contextlib.suppress(ConnectionError, EOFError):
        while True:
            _, request = receive(parent, _ANY_SIZE)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            kind, text = _answer(request)
            signal.setitimer(signal.ITIMER_PROF, 0)
            send(parent, kind, text)


def _limit(memory: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = pages * resource.getpagesize() + memory
    soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_AS, (soft, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(request: bytearray) -> tuple[bytes, bytes]:
    try:
        template, variables = pickle.loads(request)
        request.clear()
        if variables is None:
            return TEXT, "\n".join(sorted(variables_read(template))).encode()
        return TEXT, render(template, variables).encode("utf-8", "surrogatepass")
    except TemplateError as error:
        return ERROR, str(error).encode("utf-8", "surrogatepass")
    except MemoryError:
        return MEMORY, b""
    except Exception as error:  # of an object of the caller's that isn't known here
        what = f"a variable of the chat template can't be sent to its process: {error}"
        return ERROR, what[:1000].encode("utf-8", "surrogatepass")

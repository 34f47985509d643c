"""Chat templates run in a process of their own.

A template comes with a checkpoint: it is data, not code to trust, and one expression of it can ask
for any amount of memory and time in a single operation that no other thread gets a turn in. So
templates are rendered in a child process with limits that the system enforces, at most MEMORY_BYTES
of memory, CPU_SECONDS of processor time and WALL_SECONDS in all for each; beyond them the process
dies, and the next template starts another. It is started with the first template, by the Python
that runs this program, and reused: a chat costs a fraction of a millisecond more. It ends with this
process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import TemplateError
from headrace.quoting import quoted, shortened
from headrace.text.templates import wire

MEMORY_BYTES = 256 << 20
CPU_SECONDS = 1.0
WALL_SECONDS = 10.0
START_SECONDS = 60.0
MAX_VARIABLE_BYTES = 16 << 20
MAX_PROCESSES = 4  # at once, for as many threads; one of them is kept
_MAX_ANSWER_BYTES = 80 << 20
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*[a-z]*")
_START = (
    "import sys; sys.path += sys.argv[1:-2]; "
    "from headrace.text.templates.worker import main; main()"
)


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Raises TemplateError."""
    return _answer(_packed(template, dict(variables)))


def variables_read(template: str) -> frozenset[str]:
    """The names of the variables that a template reads. Raises TemplateError.

    In the other process too: Jinja computes constant expressions when it compiles.
    """
    return frozenset(_answer(bytearray(pickle.dumps((template, None), 5))).split())


def _answer(request: bytearray) -> str:
    worker = _pool.take()
    healthy = False
    try:
        kind, answer = worker.ask(request)
        healthy = kind != wire.MEMORY
    finally:  # one that an exception left in the middle, Ctrl-C too, can't go on
        _pool.give(worker, healthy)
    text = answer.decode("utf-8", "surrogatepass")
    if kind == wire.TEXT:
        return text
    raise TemplateError(_NO_MEMORY if kind == wire.MEMORY else text)


_NO_MEMORY = f"the chat template needs more than the {MEMORY_BYTES >> 20} MiB of memory allowed"


class _Request(bytearray):
    """A file that takes only so much."""

    def write(self, data: Any) -> int:
        if len(self) + len(data) > MAX_VARIABLE_BYTES:
            raise TemplateError(
                f"the variables of the chat template, the messages among them, have more than the "
                f"{MAX_VARIABLE_BYTES} bytes allowed"
            )
        self += data
        return len(data)


def _packed(template: str, variables: dict[str, Any]) -> bytearray:
    request = _Request()
    try:
        pickle.Pickler(request, 5).dump((template, variables))
    except TemplateError:
        raise
    except Exception as error:  # which one depends on the object
        raise TemplateError(
            f"{_unsendable(variables)} is not plain data: templates run in a process of their own, "
            f"so give strings, numbers, lists and dicts ({shortened(str(error))})"
        ) from error
    return request


def _unsendable(variables: dict[str, Any]) -> str:
    for name, value in variables.items():
        try:
            pickle.dumps(value, 5)
        except Exception:
            return f"the template variable {quoted(name)} ({quoted(value)})"
    return "a variable of the template"


class _Worker:
    """One process. Used by one thread at a time."""

    def __init__(self) -> None:
        """Raises TemplateError if it can't be started."""
        self._peer, its_end = socket.socketpair()
        try:
            with its_end:
                self._process = _start(its_end)
        except BaseException:
            self._peer.close()
            raise
        self._ready = False

    def ask(self, request: bytearray) -> tuple[bytes, bytearray]:
        """The kind and the bytes of the answer. After an exception the worker is of no more use."""
        try:
            if not self._ready:
                self._peer.settimeout(START_SECONDS)
                wire.receive(self._peer, 0)
                self._ready = True
            deadline = time.monotonic() + WALL_SECONDS
            self._peer.settimeout(WALL_SECONDS)
            wire.send(self._peer, wire.REQUEST, request)
            self._peer.settimeout(max(deadline - time.monotonic(), 0.001))
            return wire.receive(self._peer, _MAX_ANSWER_BYTES)
        except TimeoutError:
            limit = WALL_SECONDS if self._ready else START_SECONDS
            raise TemplateError(f"the chat template took more than {limit:g} s") from None
        except (OSError, EOFError) as error:
            raise TemplateError(self._why_it_died(error)) from None

    def close(self) -> None:
        """Ends the process and waits for its end, which is a matter of milliseconds."""
        self._peer.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """In a forked child, whose parent goes on using it."""
        self._peer.close()
        self._process.returncode = 0  # not this process's to wait for

    def _why_it_died(self, error: Exception) -> str:
        self._peer.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        if code == -signal.SIGPROF:
            return f"the chat template took more than {CPU_SECONDS:g} s of processor time"
        if not self._ready:
            return (
                f"the process that renders chat templates can't start (exit code {code}, "
                f"{quoted(_interpreter())}): render the conversation yourself and call generate()"
            )
        return f"the process that rendered the chat template died (exit code {code}): {error}"


def _start(its_end: socket.socket) -> subprocess.Popen[bytes]:
    limits = [str(MEMORY_BYTES), str(CPU_SECONDS)]
    try:
        return subprocess.Popen(
            # Without site-packages, whose .pth files may do anything: the paths are given.
            [_interpreter(), "-I", "-S", "-c", _START, *_import_paths(), *limits],
            stdin=its_end.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for this process alone
        )
    except OSError as error:
        raise TemplateError(
            f"the process that renders chat templates can't be started: {error}"
        ) from error


def _interpreter() -> str:
    """A Python of this version: in a program that embeds Python, sys.executable is that program."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"
    base = getattr(sys, "_base_executable", None)
    installed = Path(sysconfig.get_config_var("BINDIR") or sys.base_exec_prefix) / "python"
    for path in (sys.executable, base, f"{installed}{version}", f"{sys.exec_prefix}/bin/python3"):
        if path and _INTERPRETER.fullmatch(Path(path).name) and os.access(path, os.X_OK):
            return path
    raise TemplateError(
        "no Python interpreter is found to render chat templates with: where Python is embedded in "
        "another program, its own must be installed too; or render the conversation yourself and "
        "call generate()"
    )


def _import_paths() -> list[str]:
    """This process's, and where these packages come from, whichever way they were found."""
    import jinja2
    import markupsafe

    packages = [str(Path(module.__path__[0]).parent) for module in (jinja2, markupsafe)]
    own = str(Path(__file__).absolute().parents[3])
    return list(dict.fromkeys([own, *packages, *map(os.path.abspath, sys.path)]))


class _Pool:
    """The processes of this process. Thread safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._registered = False

    def take(self) -> _Worker:
        with self._changed:
            self._changed.wait_for(lambda: self._idle or len(self._busy) < MAX_PROCESSES)
            worker = self._idle.pop() if self._idle else _Worker()
            self._busy.add(worker)
            if not self._registered:
                atexit.register(self.close)
                self._registered = True
            return worker

    def give(self, worker: _Worker, healthy: bool) -> None:
        with self._changed:
            self._busy.discard(worker)
            kept = healthy and not self._idle
            if kept:
                self._idle.append(worker)
            self._changed.notify()
        if not kept:
            worker.close()

    def close(self) -> None:
        with self._changed:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def after_fork(self) -> None:
        """The child's own; nobody else is left to hold the lock."""
        workers = [*self._idle, *self._busy]
        self._changed = threading.Condition()
        self._idle, self._busy = [], set()
        for worker in workers:
            worker.forget()


_pool = _Pool()
os.register_at_fork(after_in_child=_pool.after_fork)

"""Work with limits that the system enforces.

What strangers send can make a library take any amount of memory and time in one operation that
nothing interrupts. So it is tried in a child process that may have so much memory and processor
time; beyond them it dies, and the next request starts another. It is started with the first request
by the Python that runs this program, and reused. It ends with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.limited import wire
from headrace.limited.start import interpreter, start
from headrace.quoting import quoted

START_SECONDS = 60.0
_MAX_ANSWER_BYTES = 80 << 20


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of work.

    handler: module with `answer(request: bytearray) -> bytes`, which raises worker.Refused.
    packages: what it imports beside this package. noun: what is worked on, in messages. does: what
    the process does with it. remedy: where there can be no process. error: the exception for a
    request that is refused or goes beyond a limit, made of a message. failure: the same where the
    process itself fails, which another request may not meet.
    """

    handler: str
    packages: tuple[str, ...]
    noun: str
    does: str
    remedy: str
    error: Callable[[str], Exception]
    failure: Callable[[str], Exception]
    memory_bytes: int = 256 << 20
    cpu_seconds: float = 1.0
    wall_seconds: float = 10.0
    most: int = 4  # processes at once, for as many threads; one of them is kept


class OutOfTime(Exception):
    """The processor time that was given isn't enough."""


class _Died(Exception):
    """The process is gone, which may have nothing to do with the request."""


class LimitedProcesses:
    """The processes of this process for one kind of work. Thread safe."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._changed = threading.Condition()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._registered = False
        os.register_at_fork(after_in_child=self._after_fork)

    def ask(
        self, request: bytes | bytearray, cpu_seconds: float | None = None, more_bytes: int = 0
    ) -> bytearray:
        """The handler's answer.

        cpu_seconds: other than the kind's. more_bytes: of address space, beyond the kind's memory.
        Raises OutOfTime if `cpu_seconds` is given and isn't enough, else Work.error and
        Work.failure.
        """
        seconds = self.work.cpu_seconds if cpu_seconds is None else cpu_seconds
        cost = wire.COST.pack(seconds, more_bytes)
        try:
            try:
                return self._ask(cost, request)
            except _Died:  # killed by somebody, perhaps; another has the same limits
                return self._ask(cost, request)
        except _Died as error:
            raise self.work.failure(str(error)) from None
        except OutOfTime as error:
            if cpu_seconds is not None:
                raise
            raise self.work.error(str(error)) from None

    def prepare(self) -> None:
        """Starts a process if there is none, and doesn't wait for it."""
        with contextlib.suppress(Exception):  # the first request tells
            self._give(self._take(), True)

    def _ask(self, cost: bytes, request: bytes | bytearray) -> bytearray:
        worker = self._take()
        healthy = False
        try:
            kind, answer = worker.ask(cost, request)
            healthy = kind != wire.MEMORY
        finally:  # one that an exception left in the middle, Ctrl-C too, can't go on
            self._give(worker, healthy)
        if kind == wire.ANSWER:
            return answer
        if kind == wire.MEMORY:
            raise self.work.error(
                f"the {self.work.noun} needs more than the {self.work.memory_bytes >> 20} MiB of "
                "memory allowed"
            )
        raise self.work.error(answer.decode("utf-8", "surrogatepass"))

    def _take(self) -> _Worker:
        with self._changed:
            try:
                self._changed.wait_for(lambda: self._idle or len(self._busy) < self.work.most)
                while self._idle and self._idle[-1].gone():
                    self._idle.pop().close()
                worker = self._idle.pop() if self._idle else _Worker(self.work)
            except BaseException:
                self._changed.notify()  # another may have this one's turn
                raise
            self._busy.add(worker)
            if not self._registered:
                atexit.register(self.close)
                self._registered = True
            return worker

    def _give(self, worker: _Worker, healthy: bool) -> None:
        with self._changed:
            self._busy.discard(worker)
            kept = healthy and not self._idle
            if kept:
                self._idle.append(worker)
            self._changed.notify()
        if not kept:
            worker.close()

    def close(self) -> None:
        """Ends those that nobody uses."""
        with self._changed:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def _after_fork(self) -> None:
        """The child's own; nobody else is left to hold the lock."""
        workers = [*self._idle, *self._busy]
        self._changed = threading.Condition()
        self._idle, self._busy = [], set()
        for worker in workers:
            worker.forget()


class _Worker:
    """One process. Used by one thread at a time."""

    def __init__(self, work: Work) -> None:
        """Raises Work.failure if it can't be started."""
        self._work = work
        self._peer, its_end = socket.socketpair()
        try:
            with its_end:
                self._process = self._start(its_end)
        except BaseException:
            self._peer.close()
            raise
        self._ready = False

    def _start(self, its_end: socket.socket) -> subprocess.Popen[bytes]:
        work = self._work
        try:
            return start(its_end, work.handler, work.memory_bytes, work.packages)
        except OSError as error:
            raise work.failure(
                f"the process that {work.does} can't be started: {error}; {work.remedy}"
            ) from error

    def ask(self, cost: bytes, request: bytes | bytearray) -> tuple[bytes, bytearray]:
        """The kind and the bytes of the answer. After an exception the worker is of no more use."""
        wall = self._work.wall_seconds
        try:
            if not self._ready:
                self._peer.settimeout(START_SECONDS)
                wire.receive(self._peer, 0)
                self._ready = True
            deadline = time.monotonic() + wall
            self._peer.settimeout(wall)
            wire.send(self._peer, wire.REQUEST, cost + request)
            self._peer.settimeout(max(deadline - time.monotonic(), 0.001))
            return wire.receive(self._peer, _MAX_ANSWER_BYTES)
        except TimeoutError:
            limit = wall if self._ready else START_SECONDS
            raise self._work.failure(f"the {self._work.noun} took more than {limit:g} s") from None
        except (OSError, EOFError) as error:
            raise self._end(wire.COST.unpack(cost)[0], error) from None

    def gone(self) -> bool:
        """Whether it has ended while nobody used it."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Ends the process and waits for its end, which is a matter of milliseconds."""
        self._peer.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """In a forked child, whose parent goes on using it."""
        self._peer.close()
        self._process.returncode = 0  # not this process's to wait for

    def _end(self, cpu_seconds: float, error: Exception) -> Exception:
        """Why it has ended."""
        self._peer.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code, work = self._process.returncode, self._work
        if code == -signal.SIGPROF:
            return OutOfTime(f"the {work.noun} took more than {cpu_seconds:g} s of processor time")
        if code == -signal.SIGABRT:  # of a library that gets no memory
            return work.error(
                f"the {work.noun} needs more than the {work.memory_bytes >> 20} MiB of memory "
                "allowed"
            )
        if not self._ready:
            return work.failure(
                f"the process that {work.does} can't start (exit code {code}, "
                f"{quoted(interpreter())}): {work.remedy}"
            )
        return _Died(f"the process that {work.does} died (exit code {code}): {error}")

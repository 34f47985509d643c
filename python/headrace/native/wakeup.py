"""Wakes coroutines when requests have output, without a thread and without polling."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import weakref
from collections.abc import Sequence

from headrace import _core


class Waker:
    """Belongs to one event loop, which watches its file descriptor. An engine's thread that has
    output writes to that: it never needs the GIL."""

    __slots__ = ("__weakref__", "_process", "_selector", "_tags", "_watches")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process = os.getpid()
        self._selector = _core.OutputSelector()
        self._tags = itertools.count()
        self._watches: dict[int, Watch] = {}
        loop.add_reader(self._selector.fileno(), self._wake)

    def _wake(self) -> None:
        if self._process != os.getpid():  # a fork of the loop's process; the output is its parent's
            return
        for tag in self._selector.take():
            watch = self._watches.get(tag)
            if watch is not None:
                watch.tell()

    def add(self, watch: Watch, queue: _core.ResultQueue, only_end: bool) -> int:
        """The tag under which `watch` is told of the queue's output, or of its end alone."""
        tag = next(self._tags)
        self._watches[tag] = watch
        self._selector.add(queue, tag, only_end=only_end)
        return tag

    def remove(self, tag: int) -> None:
        """Any thread."""
        self._selector.remove(tag)
        self._watches.pop(tag, None)

    async def wait(
        self, queue: _core.ResultQueue, timeout: float | None, only_end: bool = False
    ) -> bool:
        """`Watch.wait`, once, for one queue."""
        watch = Watch(self, (queue,), only_end)
        try:
            return await watch.wait(timeout)
        finally:
            watch.close()


class Watch:
    """Waits, as often as one likes, for output of any of some queues, or for an end alone. Takes
    nothing: another reader may be faster. Any thread may close it; the rest belongs to the loop."""

    __slots__ = ("_tags", "_told", "_waker", "_woken", "loop")

    def __init__(
        self, waker: Waker, queues: Sequence[_core.ResultQueue], only_end: bool = False
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._waker = waker
        self._told = False
        self._woken: asyncio.Future[bool] | None = None
        self._tags = [waker.add(self, queue, only_end) for queue in queues]

    def tell(self) -> None:
        self._told = True
        _resolve(self._woken, True)

    async def wait(self, timeout: float | None = None) -> bool:
        """Until there is output that came since the last call; False after `timeout` seconds."""
        if not self._told:
            woken = self._woken = self.loop.create_future()
            timer = None
            if timeout is not None:
                timer = self.loop.call_later(timeout, _resolve, woken, False)
            try:
                if not await woken:
                    return False
            finally:
                self._woken = None
                if timer is not None:
                    timer.cancel()
        self._told = False
        return True

    def close(self) -> None:
        for tag in self._tags:
            self._waker.remove(tag)
        self._tags = []


def _resolve(future: asyncio.Future[bool] | None, value: bool) -> None:
    if future is not None and not future.done():
        future.set_result(value)


_lock = threading.Lock()
_wakers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Waker] = weakref.WeakKeyDictionary()


def current_waker() -> Waker:
    """The running loop's."""
    loop = asyncio.get_running_loop()
    with _lock:
        waker = _wakers.get(loop)
        if waker is None:
            waker = _wakers[loop] = Waker(loop)
        return waker

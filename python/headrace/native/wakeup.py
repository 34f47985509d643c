"""Wakes coroutines when requests have output, without a thread and without polling."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref

from headrace import _core


class Waker:
    """Belongs to one event loop, which watches its file descriptor. An engine's thread that has
    output writes to that: it never needs the GIL."""

    __slots__ = ("__weakref__", "_selector", "_tags", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._selector = _core.OutputSelector()
        self._tags = itertools.count()
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        loop.add_reader(self._selector.fileno(), self._wake)

    def _wake(self) -> None:
        for tag in self._selector.take():
            _resolve(self._waiting.get(tag), True)

    async def wait(
        self, queue: _core.ResultQueue, timeout: float | None, only_end: bool = False
    ) -> bool:
        """Until the queue has output, or its request has finished; False after `timeout` seconds.

        Takes nothing: another reader may be faster. REQUIRES: the loop is the waker's own.
        """
        loop = asyncio.get_running_loop()
        tag = next(self._tags)
        woken: asyncio.Future[bool] = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, _resolve, woken, False)
        self._waiting[tag] = woken
        try:
            self._selector.add(queue, tag, only_end=only_end)
            return await woken
        finally:
            self._selector.remove(tag)
            del self._waiting[tag]
            if timer is not None:
                timer.cancel()


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

"""How many requests are in the engine, how many wait, how much they bring, and who is sent away."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.server.errors import ApiError

T = TypeVar("T")
_MAX_RETRY_SECONDS = 60


class Admission:
    """Places for `max_running` requests, and a queue of `max_waiting` before them, first come
    first served. Belongs to one event loop."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._places = asyncio.Semaphore(max_running)
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._mean_seconds = 1.0  # a request's time in its place
        self.running = 0
        self.waiting = 0

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Holds a place within the block. Raises ApiError (429) if the queue is full."""
        if self._places.locked() and self.waiting >= self._max_waiting:
            raise ApiError(
                f"the server is busy: {self.running} requests run and {self.waiting} wait",
                429,
                code="queue_full",
                retry_after=self._retry_seconds(),
            )
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        start = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            self._places.release()
            self._mean_seconds += 0.1 * (time.monotonic() - start - self._mean_seconds)

    def _retry_seconds(self) -> int:
        """When the queue should have moved."""
        seconds = self._mean_seconds * (self.waiting + 1) / self._max_running
        return min(max(math.ceil(seconds), 1), _MAX_RETRY_SECONDS)


class HeavyWork:
    """Threads for what takes long under the GIL. Few: each of them delays the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, "headrace-heavy")

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class BodyBudget:
    """Bytes of all bodies together whose requests haven't ended. Belongs to one event loop."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used = 0

    @contextlib.contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Gives what takes more bytes, and raises ApiError (429) where there are none; they are
        given back at the end of the block."""
        own = 0

        def take(count: int) -> None:
            nonlocal own
            if self.used + count > self._max_bytes:
                raise ApiError(
                    f"the server is busy: requests in flight have {self.used} bytes of bodies, and "
                    f"may have {self._max_bytes}",
                    429,
                    code="bodies_full",
                    retry_after=1,
                )
            own += count
            self.used += count

        try:
            yield take
        finally:
            self.used -= own

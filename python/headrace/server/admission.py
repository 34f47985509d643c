"""How many requests are in the engine, how many wait, and who is sent away."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator

from headrace.server.errors import ApiError

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

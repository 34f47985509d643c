"""Items of prompts, loaded on a few threads beside each other."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait

from headrace.errors import EngineError, MediaError
from headrace.media.item import MediaItem

THREADS = 4
_CLOSED = "the LLM has been closed"


class Loading:
    """The items of one prompt, on their way. Belongs to one thread at a time."""

    def __init__(self, futures: Sequence[Future[MediaItem]]) -> None:
        self._futures = futures

    def items(self) -> list[MediaItem]:
        """All of them, in order; waits for them. Raises what the first bad one raised (MediaError,
        ValueError, TypeError, ImportError), and EngineError if the loader has been closed. What has
        not begun then isn't begun."""
        try:
            wait(self._futures, return_when="FIRST_EXCEPTION")
            return self._checked()
        finally:
            self.cancel()

    async def finished(self) -> None:
        """Waits until `items` has nothing to wait for. Cancelling it cancels the loading."""
        try:
            wrapped = [asyncio.wrap_future(future) for future in self._futures]
            for future in wrapped:
                future.add_done_callback(_told_by_items)
            if wrapped:
                await asyncio.wait(wrapped, return_when=asyncio.FIRST_EXCEPTION)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """What has not begun isn't begun."""
        for future in self._futures:
            future.cancel()

    def _checked(self) -> list[MediaItem]:
        for future in self._futures:
            if future.done() and not future.cancelled() and (error := future.exception()):
                raise error
        try:
            return [future.result() for future in self._futures]
        except CancelledError:
            raise EngineError(_CLOSED, 500) from None


def _told_by_items(future: asyncio.Future[MediaItem]) -> None:
    if not future.cancelled():
        future.exception()


class RowBudget:
    """The tokens that the items of one prompt may take, in all. For any number of threads."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = self._left = most

    def take(self, item: MediaItem) -> MediaItem:
        """`item`, with its rows taken off. Raises MediaError for too many."""
        with self._lock:
            self._left -= item.rows
            if self._left >= 0:
                return item
        raise MediaError(
            f"the images and clips of the prompt take more than {self._most} tokens, which is what "
            "the model has room for: send fewer, or lower max_pixels or the number of frames"
        )


class Loader:
    """Threads that load items. For any number of callers, in a forked process, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._process = 0
        self._closed = False

    def begin(self, work: Iterable[Callable[[], MediaItem]]) -> Loading:
        """Starts to load. Raises EngineError once it has been closed."""
        with self._lock:
            if self._closed:
                raise EngineError(_CLOSED, 500)
            if self._threads is None or self._process != os.getpid():
                self._process = os.getpid()  # threads don't come along into a forked one
                self._threads = ThreadPoolExecutor(THREADS, "headrace-media")
            return Loading([self._threads.submit(one) for one in work])

    def close(self) -> None:
        """Nothing more is begun; what runs comes to its end by itself. Idempotent."""
        with self._lock:
            self._closed = True
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)

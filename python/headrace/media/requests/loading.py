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
FETCHES = 16
_CLOSED = "the LLM has been closed"


class Loading:
    """The items of one prompt, on their way. Belongs to one thread at a time."""

    def __init__(self, futures: Sequence[Future[MediaItem]], dropped: threading.Event) -> None:
        self._futures = futures
        self._dropped = dropped

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
        """What has not begun isn't begun, and clips end at their next frame."""
        self._dropped.set()
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
            "the model has room for: send fewer or smaller ones (max_pixels, the number of "
            "frames), or raise max_model_len"
        )


class Loader:
    """Threads that load items. For any number of callers, in a forked process, too.

    What must be fetched has threads of its own, so that slow servers hold up nothing but what comes
    from afar; THREADS decode, whatever they decode.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None
        self._process = 0
        self._closed = False
        self._here = threading.local()

    def begin(self, work: Iterable[tuple[Callable[[], MediaItem], bool]]) -> Loading:
        """Starts to load: what makes an item, and whether it is fetched. Raises EngineError once
        it has been closed."""
        with self._lock:
            near, far = self._started()
            dropped = threading.Event()
            return Loading(
                [
                    (far if fetched else near).submit(self._run, one, dropped)
                    for one, fetched in work
                ],
                dropped,
            )

    def _run(self, work: Callable[[], MediaItem], dropped: threading.Event) -> MediaItem:
        self._here.dropped = dropped
        try:
            return work()
        finally:
            self._here.dropped = None

    def check(self) -> None:
        """Within the work: raises MediaError once nobody wants its item any more."""
        dropped: threading.Event | None = getattr(self._here, "dropped", None)
        if dropped is not None and dropped.is_set():
            raise MediaError("nobody waits for it any more")

    def decode(self, work: Callable[[], MediaItem]) -> MediaItem:
        """The rest of an item's work, once its bytes are there: on one of THREADS."""
        if not getattr(self._here, "fetches", False):
            return work()
        with self._lock:
            future = self._started()[0].submit(self._run, work, self._here.dropped)
        try:
            return future.result()
        except CancelledError:
            raise EngineError(_CLOSED, 500) from None

    def _started(self) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
        if self._closed:
            raise EngineError(_CLOSED, 500)
        if self._pools is None or self._process != os.getpid():
            self._process = os.getpid()  # threads don't come along into a forked one
            self._pools = (
                ThreadPoolExecutor(THREADS, "headrace-media"),
                ThreadPoolExecutor(FETCHES, "headrace-fetch", self._note_fetching),
            )
        return self._pools

    def _note_fetching(self) -> None:
        self._here.fetches = True

    def close(self) -> None:
        """Nothing more is begun; what runs comes to its end by itself. Idempotent."""
        with self._lock:
            self._closed = True
            for pool in self._pools or ():
                pool.shutdown(wait=False, cancel_futures=True)

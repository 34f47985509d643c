"""One thread for many requests."""

from __future__ import annotations

from headrace import _core
from headrace.native.queue import ResultQueue


class Selector:
    """Waits for output of any of many queues. Any thread may call any method.

        for tag in selector.wait():
            while (output := queues[tag].get_nowait()) is not None: ...

    A program with an event loop of its own can watch `fileno()` and call `take`; coroutines need
    none of this: see ResultQueue.get_async.
    """

    __slots__ = ("__weakref__", "_core")

    def __init__(self) -> None:
        self._core = _core.OutputSelector()

    def add(self, queue: ResultQueue, tag: int, *, only_end: bool = False) -> None:
        """From now on `tag` is reported when `queue` has output (or, with `only_end`, once it has
        finished), and at once if that is so already. A queue may be in several selectors.

        Raises ValueError if the tag is in use.
        """
        self._core.add(queue._core, tag, only_end=only_end)

    def remove(self, tag: int) -> None:
        """The tag isn't reported any more and may be used again."""
        self._core.remove(tag)

    def wait(self, timeout: float | None = None) -> list[int]:
        """Tags reported since the last call, each once; [] if `timeout` seconds passed first."""
        return self._core.wait(timeout)

    def wake(self) -> None:
        """Ends the `wait` that a thread is in, or else the next one: it gives what was reported so
        far, perhaps []."""
        self._core.wake()

    def take(self) -> list[int]:
        """The same without waiting."""
        return self._core.take()

    def fileno(self) -> int:
        """Readable while there are tags to take. Neither read nor close it."""
        return self._core.fileno()

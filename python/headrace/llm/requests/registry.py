"""The requests in flight of one model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from headrace import native
from headrace.errors import EngineError
from headrace.quoting import quoted


class Registry:
    """The requests in flight of an LLM, by id. Thread safe; nothing is submitted under its lock."""

    def __init__(self, wake_waiting: Callable[[], None]) -> None:
        """`wake_waiting`: called when requests have been cancelled that weren't submitted yet."""
        self._wake_waiting = wake_waiting
        # Taken again by a stream that the collector finds while it is held, and that withdraws.
        self._lock = threading.RLock()
        self._handles: dict[str, native.Request | None] = {}  # None: not submitted yet

    def reserve(self, request_id: str, names: set[str]) -> None:
        """Puts a request in flight, which `submitted` follows; its id is in `names` before.

        Raises ValueError for an id in use.
        """
        with self._lock:
            if request_id in self._handles:
                raise ValueError(f"request_id {quoted(request_id)} is already in use")
            names.add(request_id)
            self._handles[request_id] = None

    def submitted(self, request_id: str, handle: native.Request) -> None:
        """Cancels it if that has been asked for meanwhile."""
        with self._lock:
            wanted = self.waits(request_id)
            self._handles[request_id] = handle
        if not wanted:
            handle.cancel()

    def waits(self, request_id: str) -> bool:
        """Whether it is in flight without having been submitted."""
        with self._lock:
            return request_id in self._handles and self._handles[request_id] is None

    def check_wanted(self, request_id: str) -> None:
        """Raises EngineError if it has been cancelled before it was submitted."""
        if not self.waits(request_id):
            raise EngineError("the request was aborted before it ran", 499)

    def remove(self, request_id: str) -> None:
        with self._lock:
            self._handles.pop(request_id, None)

    def withdraw(self, request_ids: Iterable[str]) -> None:
        """Cancels and forgets those of them that are in flight."""
        with self._lock:
            found = [name for name in request_ids if name in self._handles]
            handles = [self._handles.pop(name) for name in found]
        self._cancel(handles)

    def ids(self) -> list[str]:
        with self._lock:
            return list(self._handles)

    def cancel(self, request_ids: Sequence[str] | None) -> None:
        """Cancels these, or all; unknown ids are ignored."""
        with self._lock:
            wanted = list(self._handles) if request_ids is None else request_ids
            handles = [self._handles[name] for name in wanted if name in self._handles]
            for name in [name for name in wanted if self.waits(name)]:
                del self._handles[name]
        self._cancel(handles)

    def _cancel(self, handles: Sequence[native.Request | None]) -> None:
        """None: one that isn't submitted yet."""
        for handle in handles:
            if handle is not None:
                handle.cancel()
        if None in handles:
            self._wake_waiting()

"""OutputSelector of fake_core."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from fake_types import Refusal


class OutputSelector:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tags: deque[int] = deque()
        self._sources: dict[int, tuple[Any, Callable[[], None]]] = {}
        self._pipe: tuple[int, int] | None = None
        self._woken = False

    def add(self, queue: Any, tag: int, *, only_end: bool = False) -> None:
        def listener() -> None:
            self._report(tag)

        with self._changed:
            if tag in self._sources:
                raise Refusal(f"tag {tag} is in use already")
            self._sources[tag] = (queue._state, listener)
        queue._state.listen(listener, only_end)

    def remove(self, tag: int) -> None:
        with self._changed:
            state, listener = self._sources.pop(tag, (None, None))
            if tag in self._tags:
                self._tags.remove(tag)
                if self._pipe is not None and not self._tags:
                    os.read(self._pipe[0], 1)
        if state is not None and listener is not None:
            state.leave(listener)

    def _report(self, tag: int) -> None:
        with self._changed:
            if tag not in self._sources or tag in self._tags:
                return
            if self._pipe is not None and not self._tags:
                os.write(self._pipe[1], b"!")
            self._tags.append(tag)
            self._changed.notify_all()

    def take(self) -> list[int]:
        with self._changed:
            if self._pipe is not None and self._tags:
                os.read(self._pipe[0], 1)
            tags = list(self._tags)
            self._tags.clear()
            return tags

    def fileno(self) -> int:
        with self._changed:
            if self._pipe is None:
                self._pipe = os.pipe()
                if self._tags:
                    os.write(self._pipe[1], b"!")
            return self._pipe[0]

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> list[int]:
        with self._changed:
            self._changed.wait_for(lambda: self._tags or self._woken, timeout)
            self._woken = False
        return self.take()

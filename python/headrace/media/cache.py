"""A cache of processed items, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from headrace.media.item import MediaItem
from headrace.quoting import quoted


class MediaCache:
    """Items by key; the least recently used go first. For any number of threads.

    An item larger than the whole cache is not kept. max_bytes 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        if not isinstance(max_bytes, int) or isinstance(max_bytes, bool):
            raise TypeError(f"max_bytes must be an int, got {quoted(max_bytes)}")
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be at least 0, got {max_bytes}")
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._items: OrderedDict[bytes, MediaItem] = OrderedDict()
        self._bytes = 0
        self._hits = 0
        self._misses = 0

    def get(self, key: bytes) -> MediaItem | None:
        with self._lock:
            item = self._items.get(key)
            if item is None:
                self._misses += 1
                return None
            self._hits += 1
            self._items.move_to_end(key)
            return item

    def put(self, key: bytes, item: MediaItem) -> None:
        with self._lock:
            old = self._items.pop(key, None)
            if old is not None:
                self._bytes -= old.nbytes
            if item.nbytes > self._max_bytes:
                return
            self._items[key] = item
            self._bytes += item.nbytes
            while self._bytes > self._max_bytes:
                _, gone = self._items.popitem(last=False)
                self._bytes -= gone.nbytes

    def clear(self) -> None:
        with self._lock:
            self._items.clear()
            self._bytes = 0

    def stats(self) -> dict[str, int]:
        """`items`, `bytes`, `hits` and `misses` so far."""
        with self._lock:
            return {
                "items": len(self._items),
                "bytes": self._bytes,
                "hits": self._hits,
                "misses": self._misses,
            }

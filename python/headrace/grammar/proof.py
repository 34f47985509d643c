"""Grammars are tried in a process of their own before this one compiles them.

Some take llguidance for ever, or all memory, in a call that nothing interrupts: a `multipleOf` of
seven digits is enough. What has compiled there, within limits, compiles here for the same cost.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import Any

from headrace.errors import EngineError
from headrace.limited.processes import LimitedProcesses, OutOfTime, Work

QUICK_SECONDS = 0.2  # of processor time, for nearly all
SLOW_SECONDS = 2.0
_MOST_SLOW = 4  # that run or wait; they have their turns one by one
_STACK = 8 << 20  # cpp/grammar takes so much for a thread that compiles,
_STACK_PER_BYTE = 4096  # and so much for a byte of the text
_REMEMBERED = 256
_REMEMBERED_CHARS = 16 << 20

_processes = LimitedProcesses(
    Work(
        handler="headrace.grammar.worker",
        packages=("llguidance",),
        noun="grammar",
        does="tries grammars",
        remedy="guided_decoding_backend='off' does without it",
        error=ValueError,
        failure=partial(EngineError, error_code=500),
        memory_bytes=384 << 20,
        wall_seconds=600.0,  # the processor's time is what counts, on a busy machine, too
    )
)


def prepare() -> None:
    """Has the process there before the first grammar comes."""
    _processes.prepare()


def check(kind: str, text: str, size: int, special: tuple[tuple[int, str], ...]) -> None:
    """Raises ValueError naming what is wrong with a grammar, or which limit it is over.

    size: ids of the vocabulary. special: its control tokens.
    """
    _asked("check", (kind, text, size, special), text)


def guidable(text: str, lenient: bool) -> tuple[str, list[str]]:
    """A JSON schema as llguidance compiles it, without dead ends, and what of it is left to the
    model. It needs no `check`.

    lenient: what can't be guided is left out, and named. Else it raises ValueError.
    """
    found: tuple[str, list[str]] = _asked("guidable", (text, lenient), text)
    return found


class _Memory:
    """What was found out lately, refusals too. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Any, tuple[bool, Any]] = OrderedDict()
        self._sizes: dict[Any, int] = {}
        self.size = 0

    def get(self, key: Any) -> tuple[bool, Any] | None:
        """Whether it is a result, and the result or the message."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: Any, good: bool, value: Any, size: int) -> None:
        """`size`: characters of both, about."""
        with self._lock:
            self.size += size - self._sizes.get(key, 0)
            self._known[key], self._sizes[key] = (good, value), size
            while len(self._known) > _REMEMBERED or self.size > _REMEMBERED_CHARS:
                oldest, _ = self._known.popitem(last=False)
                self.size -= self._sizes.pop(oldest)


_memory = _Memory()


def _asked(name: str, arguments: tuple[Any, ...], text: str) -> Any:
    key = name, arguments
    known = _memory.get(key)
    if known is None:
        try:
            known = True, pickle.loads(_answer(pickle.dumps(key, 5), text))
        except ValueError as error:
            known = False, str(error)
        good, value = known
        _memory.put(key, good, value, 2 * len(text))  # a result is about as long
    good, value = known
    if not good:
        raise ValueError(value)
    return value


def _answer(request: bytes, text: str) -> bytearray:
    """Slow ones wait for each other, and hold up no others."""
    more = _STACK + _STACK_PER_BYTE * len(text.encode())
    try:
        return _processes.ask(request, QUICK_SECONDS, more)
    except OutOfTime:
        with _slow_place():
            try:
                return _processes.ask(request, SLOW_SECONDS, more)
            except OutOfTime as error:
                raise ValueError(str(error)) from None


_slow_turn = threading.Lock()
_slow_places = threading.Semaphore(_MOST_SLOW)


@contextlib.contextmanager
def _slow_place() -> Iterator[None]:
    if not _slow_places.acquire(blocking=False):
        raise EngineError(
            "the server is busy with grammars that take long to compile: try again", 503
        )
    try:
        with _slow_turn:
            yield
    finally:
        _slow_places.release()

"""The adapters of a model: loaded when a request first names them, unloaded when idle."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from headrace import native
from headrace.options.lora import LoRARequest


class AdaptersBusy(Exception):
    """The adapter is not there: all places hold others that are in use, or are being loaded."""

    def __init__(self, lora: LoRARequest) -> None:
        super().__init__(lora)
        self.lora = lora


class _Load:
    """An adapter on its way in."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None


class Changes:
    """Lets threads wait until a request has ended, or until they are told of another change.

    Nothing is missed: a thread reads `count`, looks at what it needs, and waits for another count.
    Any thread may call any method.
    """

    def __init__(self) -> None:
        self._ends = native.Selector()
        self._tags = count()
        self._changed = threading.Condition()
        self._listening = False  # a thread waits for the selector, on behalf of all that wait
        self.count = 0

    def expect_end(self, request: native.Request) -> None:
        """Its end is a change."""
        self._clear(self._ends.take())
        self._ends.add(request.results(), next(self._tags), only_end=True)

    def tell(self) -> None:
        """Something else has changed."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()
            listening = self._listening
        if listening:
            self._ends.wake()

    def wait(self, seen: int, timeout: float | None = None) -> None:
        """Until `count` isn't `seen` any more, or `timeout` seconds have passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self.count == seen:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                if self._listening:
                    self._changed.wait(left)
                else:
                    self._listen(left)

    def _listen(self, timeout: float | None) -> None:
        """REQUIRES: the lock, which is released meanwhile."""
        self._listening = True
        self._changed.release()
        try:
            ended = self._ends.wait(timeout)
        finally:
            self._changed.acquire()
            self._listening = False
            self._changed.notify_all()  # another may listen
        self._clear(ended)

    def _clear(self, ended: list[int]) -> None:
        for tag in ended:
            self._ends.remove(tag)
        if ended:
            self.tell()


class LoraCache:
    """The adapters of one model, at most `max_loras`. Thread safe: nobody waits for another's
    adapter to be read."""

    def __init__(self, engine: native.Engine, model: str, max_loras: int) -> None:
        self._engine = engine
        self._model = model
        self._max_loras = max_loras
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._names: OrderedDict[LoRARequest, str] = (
            OrderedDict()
        )  # in the engine; oldest use first
        self._loads: dict[LoRARequest, _Load] = {}
        self.changes = Changes()  # after which a place may be free

    def submit(self, lora: LoRARequest, submit: Callable[[str], native.Request]) -> native.Request:
        """What `submit` gives for the adapter's name in the engine.

        Raises AdaptersBusy if it is not there: `prepare` loads it.
        """
        with self._lock:  # from here to the submission nothing may unload it
            if lora not in self._names:
                raise AdaptersBusy(lora)
            self._names.move_to_end(lora)
            request = submit(self._names[lora])
        self.changes.expect_end(request)
        return request

    def prepare(self, lora: LoRARequest) -> bool:
        """Loads it if there is a place for it, or waits until another thread has; False if all
        places are in use. Raises HeadraceError if it can't be loaded."""
        with self._lock:
            if lora in self._names:
                return True
            load = self._loads.get(lora)
            is_ours = load is None
            if load is None:
                if not self._make_room():
                    return False
                load = self._loads[lora] = _Load()
        if is_ours:
            self._load(lora, load)
        load.done.wait()
        if load.error is not None:
            raise load.error
        return True

    def _load(self, lora: LoRARequest, load: _Load) -> None:
        name = f"{lora.lora_name} ({next(self._numbers)})"
        try:
            self._engine.load_lora(self._model, name, lora.lora_path)
        except BaseException as error:
            load.error = error
        with self._lock:
            del self._loads[lora]
            if load.error is None:
                self._names[lora] = name
        load.done.set()
        self.changes.tell()

    def _make_room(self) -> bool:
        """False if all places are in use."""
        if len(self._names) + len(self._loads) < self._max_loras:
            return True
        idle = {lora.name for lora in self._engine.loras(self._model) if not lora.live_requests}
        for lora, name in self._names.items():
            if name in idle:
                self._engine.unload_lora(self._model, name)
                del self._names[lora]
                return True
        return False

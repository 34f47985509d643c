"""The adapters of a model: loaded when a request first names them, unloaded when idle."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from headrace import native
from headrace.options.lora import LoRARequest

T = TypeVar("T")


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

    def submit(self, lora: LoRARequest, submit: Callable[[str], T]) -> T:
        """What `submit` gives for the adapter's name in the engine.

        Raises AdaptersBusy if it is not there: `prepare` loads it.
        """
        with self._lock:  # from here to the submission nothing may unload it
            if lora not in self._names:
                raise AdaptersBusy(lora)
            self._names.move_to_end(lora)
            return submit(self._names[lora])

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

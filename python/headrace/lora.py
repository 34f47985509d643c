"""Adapters (LoRA) of an LLM: loaded when a request first names them, unloaded when idle."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from headrace import native
from headrace.quoting import checked_text, quoted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """The adapter that a prompt is to be answered with.

    lora_name: for messages. lora_int_id: tells adapters of the same name and path apart, >= 1.
    lora_path: a PEFT folder: adapter_config.json and adapter_model.safetensors. It is read when
        the adapter is first used; one that should be read again needs another id.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str

    def __post_init__(self) -> None:
        for name in ("lora_name", "lora_path"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} must be a string that is not empty, got {quoted(value)}")
            checked_text(value, name)
        number = self.lora_int_id
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"lora_int_id must be an int >= 1, got {quoted(number)}")


LoRARequests = LoRARequest | Sequence[LoRARequest | None] | None


def lora_list(requests: LoRARequests, count: int, enabled: bool) -> list[LoRARequest | None]:
    """One for each prompt."""
    if requests is None:
        return [None] * count
    if not enabled:
        raise ValueError("lora_request needs an LLM(..., enable_lora=True)")
    if isinstance(requests, LoRARequest):
        return [requests] * count
    if not isinstance(requests, (list, tuple)) or not all(
        item is None or isinstance(item, LoRARequest) for item in requests
    ):
        raise TypeError(
            f"lora_request must be a LoRARequest or a list of them or None, got {quoted(requests)}"
        )
    if len(requests) != count:
        raise ValueError(f"{len(requests)} lora_requests for {count} prompts")
    return list(requests)


class AdaptersBusy(Exception):
    """The adapter is not there: all places hold others that are in use, or are being loaded."""


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
                raise AdaptersBusy
            self._names.move_to_end(lora)
            return submit(self._names[lora])

    def prepare(self, lora: LoRARequest) -> None:
        """Loads it if there is a place for it, or waits until another thread has. Raises
        HeadraceError if it can't be loaded."""
        with self._lock:
            if lora in self._names:
                return
            load = self._loads.get(lora)
            is_ours = load is None
            if load is None:
                try:
                    self._make_room()
                except AdaptersBusy:
                    return
                load = self._loads[lora] = _Load()
        if is_ours:
            self._load(lora, load)
        load.done.wait()
        if load.error is not None:
            raise load.error

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

    def _make_room(self) -> None:
        if len(self._names) + len(self._loads) < self._max_loras:
            return
        idle = {lora.name for lora in self._engine.loras(self._model) if not lora.live_requests}
        for lora, name in self._names.items():
            if name in idle:
                self._engine.unload_lora(self._model, name)
                del self._names[lora]
                return
        raise AdaptersBusy

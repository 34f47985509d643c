"""Adapters (LoRA) of an LLM: loaded when a request first names them, unloaded when idle."""

from __future__ import annotations

import contextlib
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
    """All places for adapters hold others that are in use."""


class LoraCache:
    """The adapters of one model, at most `max_loras`. Thread safe."""

    def __init__(self, engine: native.Engine, model: str, max_loras: int) -> None:
        self._engine = engine
        self._model = model
        self._max_loras = max_loras
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._names: OrderedDict[LoRARequest, str] = (
            OrderedDict()
        )  # in the engine; oldest use first

    def submit(self, lora: LoRARequest, submit: Callable[[str], T]) -> T:
        """What `submit` gives for the adapter's name in the engine, loading it if need be.

        Raises AdaptersBusy if there is no place for it now, and HeadraceError.
        """
        with self._lock:  # from here to the submission nothing may unload it
            if lora not in self._names:
                self._load(lora)
            self._names.move_to_end(lora)
            return submit(self._names[lora])

    def prepare(self, lora: LoRARequest) -> None:
        """Loads it if there is a place for it, so that `submit` takes no time."""
        with self._lock, contextlib.suppress(AdaptersBusy):
            if lora not in self._names:
                self._load(lora)

    def _load(self, lora: LoRARequest) -> None:
        if len(self._names) >= self._max_loras:
            self._unload_one()
        name = f"{lora.lora_name} ({next(self._numbers)})"
        self._engine.load_lora(self._model, name, lora.lora_path)
        self._names[lora] = name

    def _unload_one(self) -> None:
        idle = {lora.name for lora in self._engine.loras(self._model) if not lora.live_requests}
        for lora, name in self._names.items():
            if name in idle:
                self._engine.unload_lora(self._model, name)
                del self._names[lora]
                return
        raise AdaptersBusy

"""The models of a server, and their adapters, by the names that requests have for them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace import HeadraceError, LoRARequest
from headrace.quoting import quoted
from headrace.server.errors import ApiError

# Makes an AsyncLLM of its keyword arguments, "model" among them.
Loader = Callable[..., Awaitable[Any]]
_MAX_NAME = 256
_adapter_ids = itertools.count(1)


class Pulse:
    """Whether a model answers: what its counters say from one look to the next."""

    def __init__(self, stats: Callable[[], Any]) -> None:
        self._stats = stats
        self._steps = -1
        self._busy = False
        self._since = 0.0

    def wrong(self, stuck_seconds: float) -> str | None:
        """What is wrong with it; None if it makes steps, or has nothing to do."""
        try:
            stats = self._stats()
        except HeadraceError as error:
            return f"failed: {error}"
        if not stats.running_replicas:
            return "failed: it takes no requests"
        now = time.monotonic()
        before, self._busy = self._busy, bool(stats.running_requests or stats.waiting_requests)
        if not (before and self._busy) or stats.steps != self._steps:
            self._steps, self._since = stats.steps, now
        if now - self._since > stuck_seconds:
            return f"stuck: {now - self._since:.0f} s without a step"
        return None


@dataclass(slots=True)
class ServedModel:
    """A model that is loaded.

    names: the first is the one that answers carry. llm: an AsyncLLM. path: what it was loaded from.
    created: seconds since the epoch.
    """

    names: list[str]
    llm: Any
    path: str
    created: int = field(default_factory=lambda: int(time.time()))
    adapters: dict[str, LoRARequest] = field(default_factory=dict)
    users: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    pulse: Pulse = field(init=False)

    def __post_init__(self) -> None:
        self.idle.set()
        self.pulse = Pulse(self.llm.stats)

    def templates(self) -> dict[str, str]:
        """By name, what chats are written with: what the server was given, or the model's own."""
        if self.llm.chat_template is not None:
            return {"default": self.llm.chat_template}
        tokenizer = self.llm.get_tokenizer()
        return {} if tokenizer is None else dict(tokenizer.chat_templates)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """The model stays within the block."""
        self.users += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.users -= 1
            if not self.users:
                self.idle.set()


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's `model` names: `name`, as answers have it."""

    model: ServedModel
    name: str
    adapter: LoRARequest | None = None


class ModelRegistry:
    """Models by name. Belongs to one event loop."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._models: list[ServedModel] = []
        self._coming: set[str] = set()  # names of models that are being loaded
        self._leaving: dict[asyncio.Task[None], ServedModel] = {}

    @property
    def models(self) -> list[ServedModel]:
        return list(self._models)

    def find(self, name: str | None) -> Target:
        """None: the first model. Raises ApiError (404)."""
        if name is None and self._models:
            return Target(self._models[0], self._models[0].names[0])
        for model in self._models:
            if name in model.names:
                return Target(model, model.names[0])
            if name in model.adapters:
                return Target(model, str(name), model.adapters[str(name)])
        raise ApiError(
            f"the model {quoted(name)} does not exist; GET /v1/models lists those that do",
            404,
            param="model",
            code="model_not_found",
        )

    async def load(
        self,
        path: str,
        names: list[str] | None = None,
        adapters: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ServedModel:
        """Loads a model. names: default: the last part of its path. adapters: folders by name.

        Raises ApiError for a name that is taken, and what loading raises.
        """
        own = names or [Path(path).name or "model"]
        wanted = [*own, *(adapters or ())]
        for name in wanted:
            self._check_free(name)
        if len(set(wanted)) < len(wanted):
            raise ApiError(f"a name is given twice: {', '.join(wanted)[:200]}", code="name_taken")
        self._coming.update(wanted)
        try:
            llm = await self._load(model=path, **options)
        finally:
            self._coming.difference_update(wanted)
        model = ServedModel(own, llm, path)
        for name, folder in (adapters or {}).items():
            model.adapters[name] = LoRARequest(name, next(_adapter_ids), folder)
        self._models.append(model)
        return model

    async def unload(self, name: str) -> None:
        """New requests don't find the model any more; when those that run have ended it is closed,
        also if the caller has stopped waiting for that.

        Raises ApiError (404).
        """
        model = self._of_model(name)
        self._models.remove(model)
        leaving = asyncio.ensure_future(_close_when_idle(model))
        self._leaving[leaving] = model
        leaving.add_done_callback(self._leaving.pop)
        await asyncio.shield(leaving)

    def add_adapter(self, name: str, folder: str, base: str | None) -> None:
        """`base`: the model's name; None: the first. Raises ApiError."""
        self._check_free(name)
        model = self.find(None).model if base is None else self._of_model(base)
        model.adapters[name] = LoRARequest(name, next(_adapter_ids), folder)

    def remove_adapter(self, name: str) -> None:
        """Requests don't find it any more; the engine drops it when it needs the place."""
        target = self.find(name)
        if target.adapter is None:
            raise ApiError(f"{quoted(name)} is a model, not an adapter", param="lora_name")
        del target.model.adapters[name]

    async def close(self) -> None:
        """Cancels what runs and closes all models."""
        models, self._models = [*self._models, *self._leaving.values()], []
        for model in models:
            await model.llm.close()

    def _of_model(self, name: str) -> ServedModel:
        target = self.find(name)
        if target.adapter is not None:
            raise ApiError(f"{quoted(name)} is an adapter, not a model", param="model")
        return target.model

    def _check_free(self, name: str) -> None:
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise ApiError(
                f"the name of a model must have 1 to {_MAX_NAME} printable characters, "
                f"got {quoted(name)}"
            )
        taken = {n for model in self._models for n in (*model.names, *model.adapters)}
        if name in taken | self._coming:
            raise ApiError(f"there is a model {quoted(name)} already", 409, code="name_taken")


async def _close_when_idle(model: ServedModel) -> None:
    await model.idle.wait()
    await model.llm.close()

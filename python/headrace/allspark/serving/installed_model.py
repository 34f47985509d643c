"""One model in an engine, and the handles of its requests."""

from __future__ import annotations

import threading

from headrace.allspark.core import engine_api
from headrace.allspark.core.as_model_config import AsModelConfig
from headrace.allspark.serving.results import ResultQueue
from headrace.text.tokenizer import Tokenizer


class RequestHandle:
    """Names a request to the engine. Opaque; safe to use after the request has been released."""

    __slots__ = ("_request", "model", "queue")

    def __init__(self, model: InstalledModel, request: engine_api.Request) -> None:
        self.model = model
        self._request = request
        self.queue = ResultQueue(request.results(), model.info.device)

    @property
    def uuid(self) -> str:
        return self._request.id

    def stop(self) -> None:
        """Returns when it has ended; at once if it already had."""
        self.queue.mark_stopped()
        self._request.cancel()
        self._request.wait()

    def sync(self) -> None:
        """Waits until it has ended."""
        self._request.wait()
        self.queue.mark_synced()

    def __repr__(self) -> str:
        return f"<request {self.uuid} of model {self.model.name!r}>"


class InstalledModel:
    """Any thread may call any method."""

    def __init__(
        self, config: AsModelConfig, info: engine_api.ModelInfo, engine: engine_api.Engine
    ) -> None:
        self.name = config.model_name
        self.config = config
        self.info = info
        self._engine = engine
        self._lock = threading.Lock()
        self._live: dict[int, RequestHandle] = {}

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Of the model's folder, read when first needed; None if it has none."""
        return self._engine.tokenizer(self.name)

    def add(self, request: engine_api.Request) -> RequestHandle:
        handle = RequestHandle(self, request)
        with self._lock:
            self._live[id(handle)] = handle
        return handle

    def handles(self) -> list[RequestHandle]:
        """Those that have not been released."""
        with self._lock:
            return list(self._live.values())

    def stop(self, handle: RequestHandle) -> bool:
        """False, here and below, for one that is another model's or has been released."""
        known = self._knows(handle)
        if known:
            handle.stop()
        return known

    def sync(self, handle: RequestHandle) -> bool:
        known = self._knows(handle)
        if known:
            handle.sync()
        return known

    def release(self, handle: RequestHandle) -> bool:
        with self._lock:
            known = self._live.pop(id(handle), None) is not None
        if known:
            handle.stop()
        return known

    def release_all(self) -> None:
        """The engine ends them with the model."""
        with self._lock:
            self._live.clear()

    def _knows(self, handle: RequestHandle) -> bool:
        with self._lock:
            return id(handle) in self._live

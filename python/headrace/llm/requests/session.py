"""The engine with one model in it, as LLM uses it."""

from __future__ import annotations

import re
import resource
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace import native
from headrace.errors import EngineError
from headrace.llm.requests.adapters import LoraCache
from headrace.llm.requests.headroom import has_room
from headrace.llm.requests.preparation import PreparedRequest
from headrace.native import LoadProgress
from headrace.options.lora import LoRARequest

# Bytes for the threads that load a model; with less they may die before their first line.
_THREAD_ROOM = 48 << 20
_BAD_REQUEST = frozenset({"invalid_argument", "limit_exceeded", "unsupported", "not_found"})


class ModelSession:
    """Holds a model, serves requests and gives everything back on `close` (at exit at the latest).

    Any thread may call any method.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """Loads nothing yet.

        `name`: for messages. `options`: of native.ModelOptions; `speculative` is a mapping.
        """
        self._name = name
        self._options = options
        self._engine = native.Engine()

    def load(self, progress: LoadProgress | None = None) -> None:
        """Loads and starts the model; `close`, by any thread, ends it early.

        progress: see native.Engine.install_model.

        Raises HeadraceError; nothing is left behind then.
        """
        try:
            guessing = native.SpeculativeOptions(**self._options.get("speculative", {}))
            whole = native.ModelOptions(**{**self._options, "speculative": guessing})
            self._engine.install_model(self._name, whole, progress=progress)
            self._engine.start_model(self._name)
            self.info = self._engine.model_info(self._name)
            self._loras = LoraCache(self._engine, self._name, self.info.max_loras)
        except native.HeadraceError as error:
            self._engine.close()
            error.args = (_with_own_names(str(error)),)
            raise
        except BaseException:
            self._engine.close()
            raise

    def submit(self, request: PreparedRequest) -> native.Request:
        """Raises HeadraceError for a bad request, and AdaptersBusy for one that may be tried again
        when others have ended."""
        if self._engine.closed:
            raise EngineError("the LLM has been closed", 500)
        submit = partial(
            self._engine.submit,
            self._name,
            request.facts.prompt_token_ids,
            request.config,
            request_id=request.facts.request_id,
            guided=request.constraint,
            media=request.media,
        )
        if request.lora is None:
            return submit()
        return self._loras.submit(request.lora, lambda name: submit(lora=name))

    def submit_pooled(
        self,
        token_ids: list[int],
        params: native.PoolingParams,
        request_id: str,
        lora: LoRARequest | None,
    ) -> native.Request:
        """`submit` of a request for an embedding or for logits."""
        if self._engine.closed:
            raise EngineError("the LLM has been closed", 500)
        submit = partial(
            self._engine.submit, self._name, token_ids, request_id=request_id, output=params
        )
        if lora is None:
            return submit()
        return self._loras.submit(lora, lambda name: submit(lora=name))

    def prepare(self, lora: LoRARequest) -> None:
        """Reads an adapter ahead of its request, if there is room for it. Raises HeadraceError."""
        self._loras.prepare(lora)

    def wait_for_adapter(self, lora: LoRARequest, wanted: Callable[[], bool]) -> None:
        """`prepare`, until it is there or not `wanted` any more: then `wake_waiting` has to be
        called. Raises HeadraceError."""
        while True:
            seen = self._loras.changes.count
            if not wanted() or self._loras.prepare(lora):
                return
            self._loras.changes.wait(seen)

    def adapter_changes(self) -> int:
        """How often a place of an adapter may have become free so far."""
        return self._loras.changes.count

    def wait_for_adapter_change(self, seen: int, timeout: float) -> None:
        """Until there are more changes than `seen`, or `timeout` seconds have passed."""
        self._loras.changes.wait(seen, timeout)

    def wake_waiting(self) -> None:
        """Has threads that wait for an adapter look again whether they are wanted."""
        self._loras.changes.tell()

    def stats(self) -> native.ModelStats:
        """Counters since the model was loaded."""
        return self._engine.model_stats(self._name)

    def clear_prefix_cache(self) -> None:
        self._engine.clear_prefix_cache(self._name)

    @property
    def closed(self) -> bool:
        return self._engine.closed

    def close(self) -> None:
        """Cancels what runs and gives all memory back. Idempotent."""
        self._engine.close()


class SessionLoader:
    """Loads a ModelSession in a thread, which needs no GIL, while the caller does something else.

        with SessionLoader(name, options) as loader:
            tokenizer = ...
            session = loader.session()

    Leaving the block by an exception, Ctrl-C among them, ends the load and closes the session.
    """

    def __init__(
        self, name: str, options: Mapping[str, Any], progress: LoadProgress | None = None
    ) -> None:
        """`progress`: as for ModelSession.load; called on the loading thread."""
        self._session = ModelSession(name, options)
        self._progress = progress
        self._error: BaseException | None = None
        # Not Thread.join, which takes the thread for ended once Ctrl-C has interrupted it.
        self._done = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._load, name="headrace-load")

    def __enter__(self) -> SessionLoader:
        try:
            self._start()
        except BaseException:  # Ctrl-C; a thread that it kept from starting never ends
            self._session.close()
            while not self._done.wait(0.1) and self._thread.is_alive():
                pass
            raise
        return self

    def _start(self) -> None:
        """Raises EngineError, instead of a wait without end, where there is no memory for it."""
        stack = threading.stack_size() or resource.getrlimit(resource.RLIMIT_STACK)[0]
        room = _THREAD_ROOM + max(stack, 0)  # -1: no limit
        refused = EngineError("there is no memory for the thread that loads the model", 500)
        if not has_room(room):
            raise refused
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no more threads
            raise EngineError(f"the thread that loads the model: {error}", 500) from error
        # The thread comes as far as the engine before the caller may keep the GIL.
        while not self._begun.wait(0.1):
            if not self._thread.is_alive():
                raise refused

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._session.close()
        self._wait()

    def _load(self) -> None:
        try:
            self._begun.set()
            self._session.load(self._progress)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def _wait(self) -> None:
        # In slices: a signal that another thread was given is heard, too.
        while not self._done.wait(0.1):
            pass

    def close(self) -> None:
        """Ends the load, or closes what it has loaded, from any thread."""
        self._session.close()

    def session(self) -> ModelSession:
        """Waits for it; raises what loading raised."""
        self._wait()
        if self._error is not None:
            raise self._error
        return self._session


def _with_own_names(message: str) -> str:
    """An error of loading, with the names that LLM has for the engine's options."""
    message = message.replace("num_kv_blocks", "num_gpu_blocks_override")
    return re.sub(r"\bmemory_utilization\b", "gpu_memory_utilization", message)


def http_code(error_code: str) -> int:
    """The RequestOutput.error_code for one of the engine's stable codes."""
    if error_code in _BAD_REQUEST:
        return 400
    return 499 if error_code == "cancelled" else 500


def request_errors() -> tuple[type[Exception], ...]:
    """What makes one request fail without touching the others."""
    return (ValueError, TypeError, EngineError, native.HeadraceError)


def describe_error(error: Exception) -> tuple[int, str]:
    """RequestOutput.error_code and error_msg."""
    if isinstance(error, EngineError):
        return error.error_code, str(error)
    if isinstance(error, native.HeadraceError):
        message = str(error).replace("encoder_cache_bytes", "the bytes of max_encoder_cache,")
        return http_code(error.code), message
    return 400, str(error)

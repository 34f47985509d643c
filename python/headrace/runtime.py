"""The engine with one model in it, as LLM uses it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import native
from headrace.errors import EngineError
from headrace.lora import LoraCache, LoRARequest
from headrace.native import LoadProgress

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

    def submit(
        self,
        prompt_token_ids: Sequence[int],
        config: native.GenerationConfig,
        request_id: str,
        constraint: Any = None,
        lora: LoRARequest | None = None,
    ) -> native.Request:
        """`constraint`: of compile_constraint. Raises HeadraceError for a bad request, and
        AdaptersBusy for one that may be tried again when others have ended."""
        if self._engine.closed:
            raise EngineError("the LLM has been closed", 500)

        def submit(lora_name: str) -> native.Request:
            return self._engine.submit(
                self._name,
                prompt_token_ids,
                config,
                request_id=request_id,
                guided=constraint,
                lora=lora_name,
            )

        return submit("") if lora is None else self._loras.submit(lora, submit)

    def prepare(self, lora: LoRARequest) -> None:
        """Reads an adapter ahead of its request, if there is room for it. Raises HeadraceError."""
        self._loras.prepare(lora)

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
        self._thread = threading.Thread(target=self._load, name="headrace-load")

    def __enter__(self) -> SessionLoader:
        try:
            self._thread.start()
            # Lets the thread come as far as the engine before the caller may keep the GIL.
            time.sleep(0.002)
        except BaseException:  # Ctrl-C; a thread that it kept from starting never ends
            self._session.close()
            while not self._done.wait(0.1) and self._thread.ident is not None:
                pass
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._session.close()
        self._wait()

    def _load(self) -> None:
        try:
            self._session.load(self._progress)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def _wait(self) -> None:
        # In slices: a signal that another thread was given is heard, too.
        while not self._done.wait(0.1):
            pass

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
        return http_code(error.code), str(error)
    return 400, str(error)

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

_BAD_REQUEST = frozenset({"invalid_argument", "limit_exceeded", "unsupported", "not_found"})


class ModelSession:
    """Loads a model, serves requests and gives everything back on `close` (at exit at the latest).

    Any thread may call any method.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """`name`: for messages. `options`: of native.ModelOptions; `speculative` is a mapping.

        Raises HeadraceError; nothing is left behind then.
        """
        self._name = name
        self._engine = native.Engine()
        try:
            guessing = native.SpeculativeOptions(**options.get("speculative", {}))
            whole = native.ModelOptions(**{**options, "speculative": guessing})
            self._engine.install_model(name, whole)
            self._engine.start_model(name)
            self.info = self._engine.model_info(name)
            self._loras = LoraCache(self._engine, name, self.info.max_loras)
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

    Leaving the block by an exception closes a session that was loaded meanwhile.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._name = name
        self._options = options
        self._session: ModelSession | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._load, name="headrace-load")

    def __enter__(self) -> SessionLoader:
        self._thread.start()
        # Lets the thread come as far as the engine before the caller may keep the GIL to itself.
        time.sleep(0.002)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.join()
        if kind is not None and self._session is not None:
            self._session.close()

    def _load(self) -> None:
        try:
            self._session = ModelSession(self._name, self._options)
        except BaseException as error:
            self._error = error

    def session(self) -> ModelSession:
        """Waits for it; raises what loading raised."""
        self._thread.join()
        if self._session is None:
            raise self._error or RuntimeError("the model was not loaded")
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

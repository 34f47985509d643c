"""The engine with one model in it. The only module that touches `_core`."""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import _core
from headrace.errors import EngineError

logger = logging.getLogger("headrace")

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_BAD_REQUEST = frozenset({"invalid_argument", "limit_exceeded", "unsupported", "not_found"})


class ModelSession:
    """Loads a model, serves requests and gives everything back on `close` (at exit at the latest).

    Any thread may call any method.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """`name`: for messages. `options`: of _core.ModelOptions.

        Raises HeadraceError; nothing is left behind then.
        """
        engine = _core.Engine(log_sink=_log)
        self._name = name
        try:
            engine.install_model(self._name, _core.ModelOptions(**options))
            engine.start_model(self._name)
            self.info = engine.model_info(self._name)
        except _core.HeadraceError as error:
            engine.close()
            error.args = (_with_own_names(str(error)),)
            raise
        except BaseException:
            engine.close()
            raise
        self._engine = engine
        # Also runs at interpreter exit, before the modules that the engine's threads need are gone.
        self._finalizer = weakref.finalize(self, engine.close)

    def submit(
        self, prompt_token_ids: Sequence[int], sampling: _core.SamplingParams, request_id: str
    ) -> _core.Request:
        """Raises HeadraceError for a bad request."""
        if not self._finalizer.alive:
            raise EngineError("the LLM has been closed", 500)
        return self._engine.submit(
            self._name, prompt_token_ids=prompt_token_ids, sampling=sampling, request_id=request_id
        )

    def stats(self) -> _core.ModelStats:
        """Counters since the model was loaded."""
        return self._engine.model_stats(self._name)

    def clear_prefix_cache(self) -> None:
        self._engine.clear_prefix_cache(self._name)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """Cancels what runs and gives all memory back. Idempotent."""
        self._finalizer()


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


def _log(level: str, message: str) -> None:
    logger.log(_LEVELS.get(level, logging.INFO), "%s", message)


def new_selector() -> _core.OutputSelector:
    return _core.OutputSelector()


def sampling_params(**values: Any) -> _core.SamplingParams:
    return _core.SamplingParams(**values)


def logprobs_kind(mode: str) -> _core.LogprobsKind:
    """One of engine_args.LOGPROBS_MODES as the engine names it."""
    return _core.LogprobsKind[mode.upper()]


def finish_reason(reason: _core.FinishReason) -> str:
    """ "stop", "length", "abort" or "error"."""
    return _core.FinishReason(reason).name.lower()


def http_code(error_code: str) -> int:
    """The RequestOutput.error_code for one of the engine's stable codes."""
    if error_code in _BAD_REQUEST:
        return 400
    return 499 if error_code == "cancelled" else 500


def request_errors() -> tuple[type[Exception], ...]:
    """What makes one request fail without touching the others."""
    return (ValueError, TypeError, EngineError, _core.HeadraceError)


def describe_error(error: Exception) -> tuple[int, str]:
    """RequestOutput.error_code and error_msg."""
    if isinstance(error, EngineError):
        return error.error_code, str(error)
    if isinstance(error, _core.HeadraceError):
        return http_code(error.code), str(error)
    return 400, str(error)


def core_version() -> str:
    return _core.__version__


def available_cpu_isas() -> list[str]:
    return list(_core.available_cpu_isas())


def model_shapes(folder: str) -> _core.ModelInfo:
    """Family and shapes from the folder's config alone."""
    return _core.model_family(folder)

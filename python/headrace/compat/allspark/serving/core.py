"""What this package needs of the C++ engine. The only module here that touches `_core`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from headrace import _core
from headrace.compat.allspark.enums import AsStatus

logger = logging.getLogger("headrace")

FinishReason = _core.FinishReason
HeadraceError = _core.HeadraceError
LogprobsKind = _core.LogprobsKind
ModelInfo = _core.ModelInfo
ModelStats = _core.ModelStats
OutOfBlocks = _core.OutOfBlocks
Output = _core.Output
Request = _core.Request
RequestStats = _core.RequestStats
RequestStatus = _core.RequestStatus
Results = _core.ResultQueue

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_STATUS = {
    "invalid_argument": AsStatus.ALLSPARK_PARAM_ERROR,
    "unsupported": AsStatus.ALLSPARK_PARAM_ERROR,
    "not_found": AsStatus.ALLSPARK_PARAM_ERROR,
    "corrupt_file": AsStatus.ALLSPARK_IO_ERROR,
    "io": AsStatus.ALLSPARK_IO_ERROR,
    "out_of_memory": AsStatus.ALLSPARK_MEMORY_ERROR,
    "limit_exceeded": AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR,
    "invalid_state": AsStatus.ALLSPARK_INVALID_CALL_ERROR,
}


def new_engine() -> _core.Engine:
    return _core.Engine(log_sink=_log)


def _log(level: str, message: str) -> None:
    logger.log(_LEVELS.get(level, logging.INFO), "%s", message)


def model_options(values: Mapping[str, Any]) -> _core.ModelOptions:
    return _core.ModelOptions(**values)


def sampling_params(values: Mapping[str, Any]) -> _core.SamplingParams:
    return _core.SamplingParams(**values)


def status_of(error: _core.HeadraceError) -> AsStatus:
    """The status code for one of the engine's stable error codes."""
    return _STATUS.get(error.code, AsStatus.ALLSPARK_RUNTIME_ERROR)


def model_family(folder: str) -> _core.ModelInfo:
    """Shapes of a model folder from its config alone."""
    return _core.model_family(folder)


def pack_model(options: Mapping[str, Any], file: str) -> None:
    """Writes a model's weights in the packed format."""
    _core.pack_model(model_options(options), file)


def check_packed(options: Mapping[str, Any]) -> None:
    """Raises HeadraceError unless loading options["packed_weights"] would work."""
    _core.check_packed(model_options(options))


def version() -> str:
    return _core.__version__

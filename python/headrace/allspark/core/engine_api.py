"""What this package needs of the engine: headrace.native, and its errors as status codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import native
from headrace.allspark.enums import AsStatus

Engine = native.Engine
FinishReason = native.FinishReason
HeadraceError = native.HeadraceError
LogprobsKind = native.LogprobsKind
ModelInfo = native.ModelInfo
ModelStats = native.ModelStats
OutOfBlocks = native.OutOfBlocks
Output = native.Output
Request = native.Request
RequestStats = native.RequestStats
RequestStatus = native.RequestStatus
Results = native.ResultQueue

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


def model_options(values: Mapping[str, Any]) -> native.ModelOptions:
    return native.ModelOptions(**values)


def status_of(error: native.HeadraceError) -> AsStatus:
    """The status code for one of the engine's stable error codes."""
    return _STATUS.get(error.code, AsStatus.ALLSPARK_RUNTIME_ERROR)

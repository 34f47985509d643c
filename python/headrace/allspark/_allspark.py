"""The names of DashInfer's C++ module."""

from __future__ import annotations

from typing import Any, NoReturn

from headrace.allspark.core.as_model_config import AsModelConfig
from headrace.allspark.enums import (
    AsCacheMode,
    AsEvictionStrategy,
    AsMHAPrefill,
    AsSchedulingStrategy,
    AsStatus,
    GenerateRequestStatus,
    VocabType,
)
from headrace.allspark.serving.as_engine import AsEngine
from headrace.allspark.serving.engine_stat import AsEngineStat, AsFileInfo
from headrace.allspark.serving.installed_model import RequestHandle
from headrace.allspark.serving.multimedia import MultiMediaInfo
from headrace.allspark.serving.results import GeneratedElements, ResultQueue
from headrace.errors import UnsupportedError

__all__ = [
    "AsCacheMode",
    "AsEngine",
    "AsEngineStat",
    "AsEvictionStrategy",
    "AsFileInfo",
    "AsMHAPrefill",
    "AsModelConfig",
    "AsSchedulingStrategy",
    "AsStatus",
    "GenerateRequestStatus",
    "GeneratedElements",
    "MultiMediaInfo",
    "RequestHandle",
    "ResultQueue",
    "VocabType",
    "save_allsparky_dltensor_tofile",
    "set_global_header",
]


def save_allsparky_dltensor_tofile(*_: Any, **__: Any) -> NoReturn:
    """Raises UnsupportedError: weights are read from safetensors."""
    raise UnsupportedError("save_allsparky_dltensor_tofile: Headrace reads safetensors files")


def set_global_header(*_: Any, **__: Any) -> NoReturn:
    """Raises UnsupportedError: weights are read from safetensors."""
    raise UnsupportedError("set_global_header: Headrace reads safetensors files")

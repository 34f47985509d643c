"""What `quantization=` and `kv_cache_quant_type=` may say, in the engine's terms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.errors import UnsupportedError
from headrace.quoting import quoted

# Weights of 8 or 4 bits. The CPU rounds activations to 8 bits, a GPU doesn't (docs/models.md), so
# that the names of weight-only and of dynamic quantization come to the same. FP8 is for GPUs.
_NAMES: Mapping[str, str] = {
    "wint8": "wint8",
    "a8w8": "wint8",
    "w8a8": "wint8",
    "a16w8": "wint8",
    "wint4": "wint4",
    "w4a8": "wint4",
    "a16w4": "wint4",
    "fp8": "fp8",
    "wfp8afp8": "fp8",
    "block_wise_fp8": "block_wise_fp8",
}
_KV_CACHE_DTYPES = ("auto", "float32", "bfloat16", "float16", "int8", "fp8", "uint4")
# FastDeploy's. Scales are worked out for each token and head, so that none are read from a file.
_KV_CACHE_NAMES: Mapping[str, str] = {
    "int8": "int8",
    "int8_zp": "int8",
    "int4_zp": "uint4",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fn_zp": "fp8",
    "block_wise_fp8": "fp8",
}
_KEYS = ("quantization", "dense_quant_type", "kv_cache_quant_type", "group_size")


def engine_quantization(value: Any) -> tuple[str, int]:
    """The engine's name ("" for none) and group size (0: the name's own).

    `value` is None, a name, or a dict (or its JSON): {"quantization": name, "group_size": 32, 64 or
    128}, where "mix_quant" means the name in "dense_quant_type" and what kv_cache_quant_type() says
    of it, and "kvcache" the latter alone. Raises ValueError, TypeError or UnsupportedError.
    """
    if value is None:
        return "", 0
    settings = _settings(value)
    unknown = [key for key in settings if key not in _KEYS]
    if unknown:
        raise UnsupportedError(
            f"quantization: {quoted(unknown[0])} is not supported; known are {', '.join(_KEYS)}"
        )
    name = settings.get("quantization")
    if name == "mix_quant":
        name = settings.get("dense_quant_type")
    if settings.get("kv_cache_quant_type") is not None and name in (None, "kvcache"):
        return "", 0
    if not isinstance(name, str) or name not in _NAMES:
        raise UnsupportedError(
            f"quantization={quoted(name)}: this version of Headrace has {', '.join(_NAMES)}"
        )
    size = settings.get("group_size", 0)
    if isinstance(size, bool) or size not in (0, 32, 64, 128):
        raise ValueError(f"quantization: group_size must be 32, 64 or 128, got {quoted(size)}")
    return _NAMES[name], int(size)


def kv_cache_quant_type(value: Any) -> Any:
    """What a dict that engine_quantization() takes says of the KV cache, None for nothing."""
    return None if value is None else _settings(value).get("kv_cache_quant_type")


def engine_kv_cache_dtype(dtype: Any, quant_type: Any = None) -> str:
    """The engine's name for `dtype`, or for FastDeploy's `quant_type` unless that is None.

    Raises ValueError or UnsupportedError.
    """
    if dtype not in _KV_CACHE_DTYPES:
        raise ValueError(
            f"kv_cache_dtype must be one of {', '.join(_KV_CACHE_DTYPES)}, got {quoted(dtype)}"
        )
    if quant_type is None:
        return str(dtype)
    if not isinstance(quant_type, str) or quant_type not in _KV_CACHE_NAMES:
        raise UnsupportedError(
            f"kv_cache_quant_type={quoted(quant_type)}: this version of Headrace has "
            f"{', '.join(_KV_CACHE_NAMES)}"
        )
    name = _KV_CACHE_NAMES[quant_type]
    if dtype not in ("auto", name):
        raise ValueError(
            f"kv_cache_dtype={quoted(dtype)} and kv_cache_quant_type={quoted(quant_type)}: set one"
        )
    return name


def _settings(value: Any) -> dict[str, Any]:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"quantization={quoted(value)} is no JSON: {error}") from error
    if isinstance(value, str):
        return {"quantization": value}
    if isinstance(value, dict):
        return value
    raise TypeError(f"quantization must be a str or a dict, got {type(value).__name__}")

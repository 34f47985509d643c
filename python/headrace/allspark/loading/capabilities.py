"""What this build runs of what the API can ask for. The one table to change when it runs more.

Everything is accepted while it is being configured; install_model refuses what is not here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.allspark.enums import AsCacheMode, AsStatus
from headrace.allspark.errors import AsException
from headrace.quoting import quoted

# The engine's name of a thing; None where it has none.
DEVICES: Mapping[str, str | None] = {"CPU": "cpu", "CPU_NUMA": "cpu_numa", "CUDA": "cuda"}
KV_CACHE_MODES: Mapping[AsCacheMode, str | None] = {
    AsCacheMode.AsCacheDefault: "auto",
    AsCacheMode.AsCacheQuantI8: "int8",
    AsCacheMode.AsCacheQuantU4: "uint4",
}
# (quant_method, compute_method, weight_format). Of integers both methods are one: the device
# chooses (docs/models.md). FP8 weights meet FP8 activations alone, and are for GPUs, as there.
_INTEGERS = {"int8": "wint8", "uint8": "wint8", "int4": "wint4", "uint4": "wint4"}
WEIGHT_QUANTIZATION: Mapping[tuple[str, str, str], str] = {
    **{
        ("instant_quant", compute, weights): name
        for compute in ("weight_only", "activate_quant")
        for weights, name in _INTEGERS.items()
    },
    ("instant_quant", "activate_quant", "fp8_e4m3"): "fp8",
}
_GROUP_SIZES = (32, 64, 128)
DATA_TYPES = ("auto", "float32", "bfloat16", "float16")


def device(kind: str, ids: Sequence[int]) -> dict[str, Any]:
    """The engine's options for "CPU", "CPU_NUMA" or "CUDA" with device ids. Raises AsException.

    Several GPUs share the model; several ids of a CPU are NUMA nodes.
    """
    if kind == "CPU" and len(ids) > 1:
        kind = "CPU_NUMA"
    name = DEVICES.get(kind)
    if name == "cuda":
        if len(ids) == 1:
            return {"device": f"cuda:{ids[0]}"}
        if len(set(ids)) != len(ids):
            raise _refusal(f"the device ids are {list(ids)}: pass those of different GPUs")
        return {"devices": [f"cuda:{number}" for number in ids]}
    if name is None:
        raise _refusal(
            f"the device {quoted(kind)} is not available here, and Headrace does not switch to "
            f"another by itself: pass TargetDevice.CPU (available: {_names(DEVICES)})"
        )
    return {"device": name}


def kv_cache_dtype(mode: AsCacheMode) -> str:
    """The engine's KV cache type for a mode. Raises AsException."""
    name = KV_CACHE_MODES.get(mode)
    if name is None:
        raise _refusal(
            f"the KV cache mode {mode} is not available here "
            f"(available: {_names(KV_CACHE_MODES)}): set kv_cache_mode to one of these"
        )
    return name


def weight_quantization(
    settings: Mapping[str, Any] | None, folder: Path | None = None
) -> dict[str, Any]:
    """The engine's options for what a model is to be quantized to. Raises AsException.

    GPTQ names what `folder` holds, which is loaded as it is.

    A group_size that the engine does not have (-1: a scale per channel) becomes its own choice,
    which is smaller and so not less exact.
    """
    if not settings:
        return {}
    if settings.get("quant_method") == "gptq" and folder is not None:
        if stored_method(folder) == "gptq":
            return {}
        raise _refusal(
            f"quant_method is gptq, but {folder / 'config.json'} has no quantization_config of it: "
            "use instant_quant, which quantizes a model while it is loaded"
        )
    wanted = (
        str(settings.get("quant_method")),
        str(settings.get("compute_method", "weight_only")),
        str(settings.get("weight_format")),
    )
    name = WEIGHT_QUANTIZATION.get(wanted)
    if name is None:
        raise _refusal(
            f"weights quantized as {', '.join(wanted)} are not available here "
            f"(available: {_names(WEIGHT_QUANTIZATION)}): choose one of these, or serialize "
            "without enable_quant"
        )
    size = settings.get("group_size", -1)
    return {
        "quantization": name,
        "quantization_group_size": size if size in _GROUP_SIZES else 0,
    }


def stored_method(folder: Path) -> str:
    """How the weights in a model folder come quantized; "" if they don't, or can't be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    stored = config.get("quantization_config") if isinstance(config, dict) else None
    return str(stored.get("quant_method", "")) if isinstance(stored, dict) else ""


def data_type(name: str) -> str:
    """The engine's name of the weights' type. Raises AsException."""
    if name not in DATA_TYPES:
        raise _refusal(f"the data type {quoted(name)} is none of {', '.join(DATA_TYPES)}")
    return name


def _names(table: Mapping[Any, str | None] | Mapping[Any, str]) -> str:
    found = [
        " ".join(key) if isinstance(key, tuple) else getattr(key, "name", key)
        for key, name in table.items()
        if name is not None
    ]
    return ", ".join(found) or "none"


def _refusal(message: str) -> AsException:
    return AsException(AsStatus.ALLSPARK_PARAM_ERROR, message)

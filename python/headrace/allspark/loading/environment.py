"""DashInfer's environment variables: the one place that reads them, and what became of each.

Read at install_model. A bad value is logged and the default stands.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger("headrace")

MIB = 1 << 20


def _ratio(text: str) -> float:
    value = float(text)
    if not 0.0 < value <= 1.0:
        raise ValueError("it must be above 0 and at most 1")
    return value


def _ratio_or_none(text: str) -> float:
    return 0.0 if float(text) == 0.0 else _ratio(text)


def _megabytes(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 40:
        raise ValueError("it must be a number of MiB, at least 0")
    return value


def _switch(text: str) -> bool:
    if text.upper() not in ("ON", "OFF", "1", "0"):
        raise ValueError("it must be ON or OFF")
    return text.upper() in ("ON", "1")


@dataclass(frozen=True, slots=True)
class Variable:
    """`read` is None for a variable that has no effect here; `note` says what it does, or why."""

    default: Any
    note: str
    read: Callable[[str], Any] | None = None


VARIABLES: dict[str, Variable] = {
    "BFC_MEM_RATIO": Variable(
        0.975, "the model may take (total memory - BFC_LEFTOVER_MB) x this ratio", _ratio
    ),
    "BFC_LEFTOVER_MB": Variable(600, "MiB of the total memory to leave alone", _megabytes),
    "BFC_ALLOW_GROWTH": Variable(True, "memory is reserved at install_model either way", _switch),
    "BFC_ALLOCATOR": Variable(True, "Headrace's allocator is always on", _switch),
    "CPU_CACHE_RATIO": Variable(
        0.0,
        "on a GPU, this share of the main memory that is available holds what the prefix cache "
        "gives up; on the CPU the prefix cache is there anyway",
        _ratio_or_none,
    ),
    "ALLSPARK_TIME_LOG": Variable(0, "times are in RequestStatInfo and AsEngineStat"),
    "HIE_LOG_STATUS_INTERVAL": Variable(5, "call get_as_engine_stat when you want to know"),
    "HIE_LOG_SATAUS_INTERVAL": Variable(5, "as HIE_LOG_STATUS_INTERVAL"),
    "ALLSPARK_USE_TORCH_SAMPLE": Variable(None, "there is one sampler"),
    "ALLSPARK_DISABLE_WARMUP": Variable(0, "the warm-up is one short step"),
    "AS_FLASH_THRESH": Variable(1024, "there is one attention kernel"),
    "AS_PROFILE": Variable("OFF", "get_op_profiling_info is empty"),
    "ALLSPARK_KVCACHE_ALLOC_SIZE": Variable(None, "the KV cache is reserved at install_model"),
    "AS_WEIGHT_LOAD_FROM_MMAP": Variable(False, "weights are always mapped"),
    "HIE_LOG_DIR": Variable("", 'configure the logger "headrace" instead'),
    "HIE_LOG_LEVEL": Variable("", "HEADRACE_LOG_LEVEL sets the level of the engine's messages"),
    "HIE_PARAM_CHECK_LEVEL": Variable(0, "parameters are always checked"),
    "AS_NUMA_NUM": Variable(None, "one process uses all cores it may"),
    "AS_DAEMON_PATH": Variable(None, "there is no daemon"),
    "AS_NUMA_OFFSET": Variable(None, "one process uses all cores it may"),
    "AS_USE_BF16_GEMM": Variable(None, "the weights' type decides"),
}


def read(name: str) -> Any:
    """The value of a variable, its default if it is unset or bad."""
    variable = VARIABLES[name]
    text = os.environ.get(name, "").strip()
    if not text or variable.read is None:
        return variable.default
    try:
        return variable.read(text)
    except ValueError as error:
        logger.warning("%s=%r is ignored: %s. It is %s", name, text, error, variable.default)
        return variable.default


def _is_set(name: str) -> bool:
    return bool(os.environ.get(name, "").strip())


def memory_options() -> dict[str, Any]:
    """The engine's memory bound: (total - leftover) x ratio, at most what is free.

    Empty if neither variable is set: the engine's own bound holds.
    """
    for name in ("BFC_ALLOW_GROWTH", "BFC_ALLOCATOR"):
        read(name)
    if not (_is_set("BFC_MEM_RATIO") or _is_set("BFC_LEFTOVER_MB")):
        return {}
    return {
        "total_memory_ratio": read("BFC_MEM_RATIO"),
        "memory_leftover_bytes": read("BFC_LEFTOVER_MB") * MIB,
    }


def swap_options(device: str, meminfo: Path = Path("/proc/meminfo")) -> dict[str, Any]:
    """The engine's swap_space; empty unless CPU_CACHE_RATIO asks for one and there is a GPU."""
    ratio = read("CPU_CACHE_RATIO")
    if not ratio or not device.startswith("cuda"):
        return {}
    lines = (line.split() for line in meminfo.read_text().splitlines())
    available = next(int(fields[1]) for fields in lines if fields[0] == "MemAvailable:")
    return {"swap_space": ratio * available / MIB}  # KiB / 2**20


def log_ineffective() -> None:
    """Says at debug level which of the set variables do nothing here."""
    for name, variable in VARIABLES.items():
        if variable.read is None and _is_set(name):
            logger.debug("%s has no effect: %s", name, variable.note)

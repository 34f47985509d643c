"""From AsModelConfig to the engine's options for a model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.allspark.core import engine_api
from headrace.allspark.core.as_model_config import AsModelConfig, parse_compute_unit
from headrace.allspark.enums import AsEvictionStrategy, AsStatus
from headrace.allspark.errors import AsException
from headrace.allspark.loading import capabilities, environment, packed_model
from headrace.quoting import quoted

logger = logging.getLogger("headrace")

_PRECISIONS = ("highest", "high", "medium", "medium_bf16", "medium_fp16")
_SPANS = (0, 16, 32, 64, 128)
_DEFAULT_SPAN = 64


@dataclass(slots=True)
class Installation:
    """What install_model hands to the engine."""

    folder: Path  # of the model's configuration and tokenizer
    options: dict[str, Any]  # of native.ModelOptions


def plan_installation(config: AsModelConfig) -> Installation:
    """Raises AsException for a configuration that cannot be installed."""
    _check(config)
    kind, ids = _compute_unit(config.compute_unit)
    files = packed_model.find_model(config.model_path, config.weights_path)
    quantization: dict[str, Any] = {}
    for settings in (config.quantization, files.quantization):
        quantization = capabilities.weight_quantization(settings, files.folder) or quantization
    options: dict[str, Any] = {
        "path": str(files.folder),
        **capabilities.device(kind, ids),
        "dtype": capabilities.data_type(files.data_type or config.data_type),
        **quantization,
        "kv_cache_dtype": capabilities.kv_cache_dtype(config.cache_mode),
        "num_threads": config.num_threads,
        "max_model_len": config.engine_max_length,
        "max_num_seqs": config.engine_max_batch,
        "block_size": config.cache_span_size or _DEFAULT_SPAN,
        "enable_prefix_caching": bool(config.enable_prefix_cache),
        "max_prefill_chunk": config.engine_max_prefill_length,
        "max_loras": config.lora_max_num,
        "max_lora_rank": config.lora_max_rank,
        "out_of_blocks": _out_of_blocks(config),
    }
    if files.packed or config.packed_weights:
        options["packed_weights"] = files.packed or config.packed_weights
    environment.log_ineffective()
    for line in config.ineffective():
        logger.warning("install_model: %s", line)
    options.update(environment.memory_options())
    if config.enable_prefix_cache:
        options.update(environment.swap_options("cuda" if kind == "CUDA" else "cpu"))
    return Installation(files.folder, options)


def _out_of_blocks(config: AsModelConfig) -> engine_api.OutOfBlocks:
    if not config.interrupts:
        return engine_api.OutOfBlocks.PREEMPT
    if config.eviction_strategy == AsEvictionStrategy.Random:
        return engine_api.OutOfBlocks.INTERRUPT_RANDOM
    return engine_api.OutOfBlocks.INTERRUPT_LONGEST


def _check(config: AsModelConfig) -> None:
    for name in ("model_name", "model_path", "weights_path"):
        if not getattr(config, name):
            raise _refusal(f"{name} is empty")
    if config.engine_max_length <= 2:
        raise _refusal(f"engine_max_length must be above 2, got {config.engine_max_length}")
    if config.engine_max_batch <= 0:
        raise _refusal(f"engine_max_batch must be above 0, got {config.engine_max_batch}")
    if config.engine_max_prefill_length < 0:
        raise _refusal(
            "engine_max_prefill_length must be 0 (no bound) or the tokens to compute at once, got "
            f"{config.engine_max_prefill_length}"
        )
    if config.cache_span_size not in _SPANS:
        raise _refusal(f"cache_span_size must be one of {_SPANS}, got {config.cache_span_size}")
    if config.matmul_precision not in _PRECISIONS:
        raise _refusal(
            f"matmul_precision must be one of {_PRECISIONS}, got {quoted(config.matmul_precision)}"
        )


def _compute_unit(text: str) -> tuple[str, list[int]]:
    try:
        return parse_compute_unit(text)
    except ValueError as error:
        raise _refusal(str(error)) from error


def _refusal(message: str) -> AsException:
    return AsException(AsStatus.ALLSPARK_PARAM_ERROR, message)

"""AsModelRuntimeConfigBuilder: how a model is installed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.allspark.core.as_model_config import AsModelConfig, parse_compute_unit
from headrace.allspark.enums import AsCacheMode, TargetDevice
from headrace.quoting import quoted

__all__ = [
    "AsModelRuntimeConfigBuilder",
    "get_cache_mode_from_str",
]

logger = logging.getLogger("headrace")


def get_cache_mode_from_str(s: str) -> AsCacheMode:
    """AsCacheMode by name. Raises ValueError."""
    if s not in AsCacheMode.__members__:
        raise ValueError(
            f"unknown cache mode {quoted(s)}: use one of {', '.join(AsCacheMode.__members__)}"
        )
    return AsCacheMode[s]


class AsModelRuntimeConfigBuilder:
    """Collects an AsModelConfig; every setter returns self, and `build()` gives the config.

    `build()` may be called again: each call gives a config of its own.
    """

    def __init__(self) -> None:
        self.new_runtime_cfg = AsModelConfig()

    def model_name(self, model_name: str) -> AsModelRuntimeConfigBuilder:
        """The name of the model in the engine."""
        return self._set(model_name=model_name)

    def model_dir(
        self, model_dir: str | os.PathLike[str], file_name_prefix: str
    ) -> AsModelRuntimeConfigBuilder:
        """The folder and the common name of the two files of a serialized model."""
        stem = os.path.join(model_dir, file_name_prefix)
        return self.model_file_path(stem + ".asgraph", stem + ".asparam")

    def model_file_path(
        self, model_file_name: str, weight_file_path: str
    ) -> AsModelRuntimeConfigBuilder:
        """The two files of a serialized model, or twice a Hugging Face folder."""
        return self._set(
            model_path=os.fspath(model_file_name), weights_path=os.fspath(weight_file_path)
        )

    def compute_unit(
        self,
        target_device: TargetDevice | str,
        device_id_array: Sequence[int] | None = None,
        compute_thread_in_device: int = 0,
    ) -> AsModelRuntimeConfigBuilder:
        """A TargetDevice or its name, its ids (default [0]), and CPU threads (0: all cores)."""
        if isinstance(target_device, str):
            if target_device.upper() not in TargetDevice.__members__:
                raise ValueError(f"target device not supported: {target_device}")
            target_device = TargetDevice[target_device.upper()]
        if not isinstance(target_device, TargetDevice):
            raise AttributeError(
                f"target_device must be a TargetDevice or its name, got {quoted(target_device)}"
            )
        ids = ",".join(str(number) for number in device_id_array or (0,))
        if target_device is TargetDevice.CPU:
            ids = "0"
        kind = "CUDA" if target_device is TargetDevice.CUDA else "CPU"
        return self._set(compute_unit=f"{kind}:{ids}", num_threads=compute_thread_in_device)

    def max_length(self, length: int | str) -> AsModelRuntimeConfigBuilder:
        """The longest prompt and output together."""
        return self._set(engine_max_length=_whole("max_length", length))

    def max_batch(self, batch: int | str) -> AsModelRuntimeConfigBuilder:
        """Requests that run at once."""
        return self._set(engine_max_batch=_whole("max_batch", batch))

    def lora_max_rank(self, rank: int | str) -> AsModelRuntimeConfigBuilder:
        return self._set(lora_max_rank=_whole("lora_max_rank", rank))

    def lora_max_num(self, num: int | str) -> AsModelRuntimeConfigBuilder:
        return self._set(lora_max_num=_whole("lora_max_num", num))

    def max_prefill_length(self, length: int) -> AsModelRuntimeConfigBuilder:
        """Prompts are computed in pieces of at most this many tokens; 0: no bound."""
        return self._set(engine_max_prefill_length=length)

    def prefill_cache(self, enable: bool = True) -> AsModelRuntimeConfigBuilder:
        """Whether prompts may use what earlier requests with the same beginning computed."""
        return self._set(enable_prefix_cache=enable)

    def prefix_cache_ttl(self, ttl: int = 300) -> AsModelRuntimeConfigBuilder:
        """No effect: the entries used longest ago go first when room is needed."""
        return self._set(prefix_cache_ttl=ttl)

    def enable_sparsity_matmul(self, enable: bool = False) -> AsModelRuntimeConfigBuilder:
        """No effect: there are no sparse kernels."""
        return self._set(enable_sparsity_matmul=enable)

    def kv_cache_mode(self, cache_mode: AsCacheMode) -> AsModelRuntimeConfigBuilder:
        return self._set(cache_mode=cache_mode)

    def kv_cache_span_size(self, span_size: int) -> AsModelRuntimeConfigBuilder:
        """Tokens in a block of the KV cache: 16, 32, 64 or 128; 0 chooses."""
        return self._set(cache_span_size=span_size)

    def set_compute_unit_from_str(self, compute_unit: str) -> AsModelRuntimeConfigBuilder:
        """As in AsModelConfig: "CPU:0", "CUDA:0,1"."""
        return self._set(compute_unit=compute_unit)

    def set_span_init_size(self, span_init_size: int) -> AsModelRuntimeConfigBuilder:
        """No effect: the whole KV cache is there from the start."""
        return self._set(cache_span_num_init=span_init_size)

    @staticmethod
    def parse_device_type(compute_unit: str) -> tuple[str, list[int]]:
        """("CUDA", [0, 1]) for "CUDA:0,1". Raises ValueError."""
        return parse_compute_unit(compute_unit)

    def from_dict(self, rfield: Mapping[str, Any]) -> AsModelRuntimeConfigBuilder:
        """The runtime_config section of a DIConfig. KeyError names a field it must have."""
        unit = rfield["compute_unit"]
        self.model_name(rfield["model_name"])
        self.compute_unit(unit["device_type"], unit["device_ids"], unit["compute_thread_in_device"])
        self.max_length(rfield["engine_max_length"]).max_batch(rfield["engine_max_batch"])
        return self.update_from_dict(rfield)

    def update_from_dict(self, rfield: Mapping[str, Any]) -> AsModelRuntimeConfigBuilder:
        """Takes over the fields that are there. Raises ValueError for an unknown kv_cache_mode."""
        setters: dict[str, Callable[[Any], object]] = {
            "enable_prefix_cache": lambda value: self.prefill_cache(bool(value)),
            "prefix_cache_ttl": lambda value: self.prefix_cache_ttl(int(value)),
            "kv_cache_mode": lambda value: self.kv_cache_mode(get_cache_mode_from_str(value)),
            "kv_cache_span_size": lambda value: self.kv_cache_span_size(int(value)),
            "enable_sparsity_matmul": lambda value: self.enable_sparsity_matmul(bool(value)),
            "cache_span_num_init": lambda value: self.set_span_init_size(int(value)),
            "engine_max_prefill_length": lambda value: self.max_prefill_length(int(value)),
            "engine_max_length": self.max_length,
            "engine_max_batch": self.max_batch,
        }
        for name, setter in setters.items():
            if name in rfield:
                setter(rfield[name])
        return self

    def loader_fields(
        self, data_type: str, quantization: dict[str, Any] | None
    ) -> AsModelRuntimeConfigBuilder:
        """What a loader was told of the weights. Not in the original."""
        return self._set(data_type=data_type, quantization=quantization)

    def build(self) -> AsModelConfig:
        return self.new_runtime_cfg.copy()

    def _set(self, **values: Any) -> AsModelRuntimeConfigBuilder:
        for name, value in values.items():
            setattr(self.new_runtime_cfg, name, value)
        return self


def _whole(name: str, value: int | str) -> int:
    try:
        return int(value) if isinstance(value, str) else value.__index__()
    except (AttributeError, ValueError):
        raise ValueError(f"{name} must be a whole number, got {quoted(value)}") from None

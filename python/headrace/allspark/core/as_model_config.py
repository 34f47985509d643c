"""AsModelConfig: how a model is installed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from headrace.allspark.enums import (
    AsCacheMode,
    AsEvictionStrategy,
    AsMHAPrefill,
    AsSchedulingStrategy,
)
from headrace.quoting import quoted

# AsModelConfig(...) with arguments starts from these, so that a forgotten one fails to install.
_ZERO_WITH_ARGUMENTS = ("engine_max_length", "engine_max_batch")
NO_EFFECT = {
    "cache_span_num_init": "the whole KV cache is there from the start",
    "cache_span_num_grow": "the whole KV cache is there from the start",
    "prefix_cache_ttl": "the entries used longest ago go first when room is needed",
    "prefill_mode": "there is one kind of attention",
    "scheduling_strategy": "every step takes what fits of prompts and outputs",
    "swap_threshold": "weights stay where they are",
    "text_graph": "nothing is written as text",
    "enable_sparsity_matmul": "there are no sparse kernels",
    "lora_names": "load_lora loads adapters",
    "matmul_precision": "the weights' type decides",
}
_HIDDEN = ("data_type", "quantization", "packed_weights")


@dataclass(init=False, repr=False)
class AsModelConfig:
    """All fields can be read and set. Checked by `Engine.install_model`.

    model_path: a model folder as published on Hugging Face, or the .asgraph that
        HuggingFaceModel.serialize_to_path wrote.
    weights_path: the same folder, or the .asparam beside the .asgraph.
    compute_unit: "CPU:0", "CUDA:0", "CUDA:0,1".
    engine_max_length: longest prompt and output together.
    engine_max_batch: requests that run at once; more wait.
    eviction_strategy: *setting* it asks for the original's behaviour when the KV cache is full:
        that request is interrupted. Left alone, requests are preempted and finish later.
    data_type, quantization: what HuggingFaceModel was told of the weights. Not in the original.
    packed_weights: "auto" keeps them in a cache folder, too, for the next start to map
        (docs/packed.md); a model that was serialized is mapped anyway. Not in the original.

    Those in NO_EFFECT have none, which install_model logs where they aren't at their default.
    """

    model_name: str = ""
    model_path: str = ""
    weights_path: str = ""
    compute_unit: str = "CUDA:0"
    engine_max_length: int = 2048
    engine_max_batch: int = 32
    engine_max_prefill_length: int = 0
    swap_threshold: int = -1
    text_graph: bool = False
    num_threads: int = 0
    matmul_precision: str = "highest"
    lora_names: list[str] = field(default_factory=list)
    cache_span_size: int = 128
    cache_span_num_init: int = 0
    cache_span_num_grow: int = 0
    enable_prefix_cache: bool = True
    prefix_cache_ttl: int = 300
    prefill_mode: AsMHAPrefill = AsMHAPrefill.AsPrefillDefault
    cache_mode: AsCacheMode = AsCacheMode.AsCacheDefault
    eviction_strategy: AsEvictionStrategy = AsEvictionStrategy.MaxLength
    scheduling_strategy: AsSchedulingStrategy = AsSchedulingStrategy.ContextPriority
    enable_sparsity_matmul: bool = False
    lora_max_rank: int = 64
    lora_max_num: int = 5
    data_type: str = "auto"
    quantization: dict[str, Any] | None = None
    packed_weights: str = ""

    def __init__(
        self,
        model_name: str = "",
        model_path: str = "",
        weights_path: str = "",
        compute_unit: str = "CUDA:0",
        engine_max_length: int | None = None,
        engine_max_batch: int | None = None,
        *others: Any,
        **values: Any,
    ) -> None:
        """others: the next fields in their order, as the original takes them, too."""
        values = self._with_positional(others, values)
        with_arguments = bool(model_name or model_path or weights_path or values)
        given = {
            "model_name": model_name,
            "model_path": model_path,
            "weights_path": weights_path,
            "compute_unit": compute_unit,
            "engine_max_length": engine_max_length,
            "engine_max_batch": engine_max_batch,
        }
        known = {item.name: item for item in fields(self)}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise TypeError(
                f"AsModelConfig has no field {quoted(unknown[0])}; it has {', '.join(known)}"
            )
        for name, item in known.items():
            default: Any = [] if name == "lora_names" else item.default
            if with_arguments and name in _ZERO_WITH_ARGUMENTS:
                default = 0
            value = values.get(name, given.get(name))
            object.__setattr__(self, name, default if value is None else value)
        object.__setattr__(self, "_interrupts", "eviction_strategy" in values)

    def _with_positional(self, others: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
        names = [item.name for item in fields(self)][6:]
        if len(others) > len(names):
            raise TypeError(f"AsModelConfig takes at most {6 + len(names)} arguments")
        positional = dict(zip(names, others, strict=False))
        twice = [name for name in positional if name in values]
        if twice:
            raise TypeError(f"AsModelConfig got two values for {quoted(twice[0])}")
        return {**positional, **values}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:
            raise AttributeError(f"AsModelConfig has no field {quoted(name)}")
        if name == "eviction_strategy":
            object.__setattr__(self, "_interrupts", True)
        object.__setattr__(self, name, value)

    def ineffective(self) -> list[str]:
        """A line for each field that was set to something that has no effect."""
        untouched = AsModelConfig()
        return [
            f"{name}={quoted(getattr(self, name))} has no effect: {reason}"
            for name, reason in NO_EFFECT.items()
            if getattr(self, name) != getattr(untouched, name)
        ]

    @property
    def interrupts(self) -> bool:
        """Whether eviction_strategy was set: a full KV cache interrupts requests."""
        return bool(self.__dict__["_interrupts"])

    def copy(self) -> AsModelConfig:
        twin = AsModelConfig()
        twin.__dict__.update(self.__dict__, lora_names=list(self.lora_names))
        return twin

    def __repr__(self) -> str:
        shown = [item.name for item in fields(self) if item.name not in _HIDDEN]
        lines = [f"\t{name}: {getattr(self, name)}" for name in shown]
        return "\n".join(["AsModelConfig:", *lines])


def parse_compute_unit(compute_unit: str) -> tuple[str, list[int]]:
    """("CUDA", [0, 1]) for "CUDA:0,1". Raises ValueError."""
    kind, colon, ids = compute_unit.partition(":")
    if not colon or kind not in ("CUDA", "CPU", "CPU_NUMA"):
        raise ValueError(
            f"compute unit {quoted(compute_unit)} is not supported: write CUDA, CPU or CPU_NUMA, a "
            "colon and the device ids, as in 'CPU:0'"
        )
    return kind, [int(item) for item in ids.split(",") if item.strip()]

"""vLLM's keywords of `LLM`, where they have other names than Headrace's or mean nothing here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from headrace.errors import UnsupportedError
from headrace.options.other_engine_args import OtherEngineArgs
from headrace.quoting import quoted

# Another name for a field of EngineArgs.
_RENAMED = {"kv_cache_memory_bytes": "kv_cache_bytes"}
_AUTOMATIC = "the engine decides by itself what is recorded and overlapped"
_ONE_PROCESS = "Headrace runs in one process, which drives every device"
# Values that say what is so in any case, and why others have no effect.
_NO_EFFECT: dict[str, tuple[tuple[Any, ...], str]] = {
    "enforce_eager": ((False,), _AUTOMATIC),
    "trust_remote_code": (
        (False,),
        "no code of a checkpoint is ever run; docs/models.md has the families that are built in",
    ),
    "disable_log_stats": ((True,), "no statistics are logged; LLM.stats() has the counters"),
    "tokenizer_mode": (("auto",), "there is one kind of tokenizer for each file"),
    "compilation_config": ((), _AUTOMATIC),
    "max_seq_len_to_capture": ((), _AUTOMATIC),
    "async_scheduling": ((), _AUTOMATIC),
    "distributed_executor_backend": ((), _ONE_PROCESS),
    "worker_cls": (("auto",), _ONE_PROCESS),
}
# Values that say what is so in any case, and what others would need.
_MISSING: dict[str, tuple[tuple[Any, ...], str]] = {
    "skip_tokenizer_init": ((False,), "models without their tokenizer (pass token ids instead)"),
    "tokenizer_revision": ((), "a revision for the tokenizer alone (revision is for both)"),
    "hf_token": ((), "a token as an argument (set HF_TOKEN in the environment)"),
    "hf_overrides": (({},), "other values for config.json (change the file in a copy)"),
    "pooler_config": ((), "pooling by arguments (the model's 1_Pooling/config.json says it)"),
    "pipeline_parallel_size": ((1,), "pipelines (tensor_parallel_size shares a model out)"),
    "cpu_offload_gb": ((0,), "weights that are kept in main memory beside a GPU"),
    "generation_config": (("auto",), "other generation configs than the folder's"),
    "override_generation_config": (({},), "such overrides (SamplingParams has the values)"),
}
# What a checkpoint is quantized by stands in its files.
_OF_CHECKPOINTS = (
    "awq",
    "awq_marlin",
    "compressed-tensors",
    "gptq",
    "gptq_marlin",
)
_DTYPES = {"half": "float16", "float": "float32"}
_KV_CACHE_DTYPES = {"fp8_e4m3": "fp8"}
VLLM_NAMES = frozenset({*_RENAMED, *_NO_EFFECT, *_MISSING, "load_format"})


class LLMKeywords(OtherEngineArgs, total=False):
    """For type checkers and editors: what else LLM takes."""

    kv_cache_memory_bytes: int
    load_format: str
    enforce_eager: bool
    trust_remote_code: bool
    disable_log_stats: bool
    tokenizer_mode: str
    compilation_config: Any
    max_seq_len_to_capture: int
    async_scheduling: bool
    distributed_executor_backend: Any
    worker_cls: Any
    skip_tokenizer_init: bool
    tokenizer_revision: str | None
    hf_token: Any
    hf_overrides: Any
    pooler_config: Any
    pipeline_parallel_size: int
    cpu_offload_gb: float
    generation_config: str
    override_generation_config: Any


def own_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those of EngineArgs. Warns of what has no effect; raises UnsupportedError for what isn't
    there, and TypeError for one thing under two names."""
    own = {name: value for name, value in kwargs.items() if name not in VLLM_NAMES}
    for name in VLLM_NAMES & kwargs.keys():
        value = kwargs[name]
        if value is None:
            continue
        if name == "load_format":
            own["load_choices"] = _load_choices(value)
        elif name in _RENAMED:
            _rename(own, name, value)
        elif name in _NO_EFFECT:
            _ignore(name, value)
        elif value not in _MISSING[name][0]:
            raise UnsupportedError(
                f"{name}={quoted(value)}: Headrace does not have {_MISSING[name][1]}"
            )
    _translate(own, "dtype", _DTYPES)
    _translate(own, "kv_cache_dtype", _KV_CACHE_DTYPES)
    named = own.get("quantization")
    if isinstance(named, str) and named.lower() in _OF_CHECKPOINTS:
        # The frames between are this one, from_kwargs and LLM.__init__.
        warnings.warn(
            f"quantization={quoted(named)} has no effect: a checkpoint's files say how it is "
            "quantized",
            stacklevel=4,
        )
        own["quantization"] = None
    return own


def vllm_types() -> dict[str, str]:
    """The type of each of VLLM_NAMES, as it is written above."""
    hints: dict[str, Any] = LLMKeywords.__annotations__
    return {name: hints[name].__forward_arg__ for name in sorted(VLLM_NAMES)}


def _ignore(name: str, value: Any) -> None:
    usual, why = _NO_EFFECT[name]
    if value not in usual:
        # The frames between are this one, own_arguments, from_kwargs and LLM.__init__.
        warnings.warn(f"{name}={quoted(value)} has no effect: {why}", stacklevel=5)


def _rename(own: dict[str, Any], name: str, value: Any) -> None:
    if own.get(_RENAMED[name]):
        raise TypeError(f"{name} and {_RENAMED[name]} are the same: give one")
    own[_RENAMED[name]] = value


def _load_choices(value: Any) -> str:
    if value in ("auto", "safetensors", "hf"):
        return "default_v1"
    if value == "dummy":
        return "dummy"
    raise UnsupportedError(
        f"load_format={quoted(value)}: Headrace reads safetensors; 'auto' and 'dummy' are known"
    )


def _translate(own: dict[str, Any], name: str, names: Mapping[str, str]) -> None:
    value = own.get(name)
    if isinstance(value, str):
        own[name] = names.get(value, value)

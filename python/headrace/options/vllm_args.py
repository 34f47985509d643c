"""vLLM's keywords of `LLM`, where they have other names than Headrace's or mean nothing here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import UnsupportedError
from headrace.options.arg_checks import warn_caller
from headrace.options.vllm_names import LLMKeywords
from headrace.quoting import did_you_mean, quoted

# Another name for a field of EngineArgs, and that field's default.
_RENAMED: dict[str, tuple[str, Any]] = {
    "kv_cache_memory_bytes": ("kv_cache_bytes", 0),
    "mm_processor_cache_gb": ("max_processor_cache", -1),
    "kv_offloading_size": ("swap_space", None),
}
_AUTOMATIC = "the engine decides by itself what is recorded and overlapped"
_KERNELS = "the engine chooses its kernels by itself"
_ONE_PROCESS = "Headrace runs in one process, which drives every device"
_LOGS = "no statistics are logged; LLM.stats() and LLM.get_metrics() have the counters"
_REQUESTS = "requests aren't logged"
_NO_CODE = "no code of a checkpoint is ever run; docs/models.md has the families that are built in"
_FILES = "weights are mapped from their safetensors files as they are needed"
_PIXELS = "processed images and clips are kept in this process; max_processor_cache bounds them"
_NO_MAMBA = "no family that is built in has Mamba layers"
# Values that say what is so in any case, and why others have no effect.
_NO_EFFECT: dict[str, tuple[tuple[Any, ...], str]] = {
    "enforce_eager": ((False,), _AUTOMATIC),
    "compilation_config": ((), _AUTOMATIC),
    "max_seq_len_to_capture": ((), _AUTOMATIC),
    "cudagraph_capture_sizes": ((), _AUTOMATIC),
    "max_cudagraph_capture_size": ((), _AUTOMATIC),
    "optimization_level": ((), _AUTOMATIC),
    "async_scheduling": ((), _AUTOMATIC),
    "enable_dbo": ((False,), _AUTOMATIC),
    "ubatch_size": ((0,), _AUTOMATIC),
    "dbo_decode_token_threshold": ((), _AUTOMATIC),
    "dbo_prefill_token_threshold": ((), _AUTOMATIC),
    "disable_hybrid_kv_cache_manager": ((), _AUTOMATIC),
    "prefix_caching_hash_algo": ((), _AUTOMATIC),
    "disable_cascade_attn": ((False,), _KERNELS),
    "attention_config": ((), _KERNELS),
    "attention_backend": ((), _KERNELS),
    "mm_encoder_attn_backend": ((), _KERNELS),
    "all2all_backend": ((), _KERNELS),
    "stream_interval": ((1,), "an update has whatever is new when it is read"),
    "trust_remote_code": ((False,), _NO_CODE),
    "code_revision": ((), _NO_CODE),
    "allow_deprecated_quantization": ((), "a checkpoint's files say how it is quantized"),
    "tokenizer_mode": (("auto",), "there is one kind of tokenizer for each file"),
    "disable_log_stats": ((True,), _LOGS),
    "aggregate_engine_logging": ((False,), _LOGS),
    "show_hidden_metrics_for_version": ((), _LOGS),
    "kv_cache_metrics": ((False,), _LOGS),
    "kv_cache_metrics_sample": ((), _LOGS),
    "cudagraph_metrics": ((False,), _LOGS),
    "enable_mfu_metrics": ((False,), _LOGS),
    "enable_logging_iteration_details": ((False,), _LOGS),
    "enable_mm_processor_stats": ((False,), _LOGS),
    "enable_layerwise_nvtx_tracing": ((False,), "layers aren't marked for Nsight"),
    "ray_workers_use_nsight": ((False,), _ONE_PROCESS),
    "enable_log_requests": ((False,), _REQUESTS),
    "disable_log_requests": ((True,), _REQUESTS),
    "max_log_len": ((), _REQUESTS),
    "distributed_executor_backend": ((), _ONE_PROCESS),
    "worker_cls": (("auto",), _ONE_PROCESS),
    "master_addr": ((), _ONE_PROCESS),
    "master_port": ((), _ONE_PROCESS),
    "data_parallel_size_local": ((), _ONE_PROCESS),
    "data_parallel_address": ((), _ONE_PROCESS),
    "data_parallel_rpc_port": ((), _ONE_PROCESS),
    "data_parallel_backend": (("mp",), _ONE_PROCESS),
    "disable_nccl_for_dp_synchronization": ((), _ONE_PROCESS),
    "expert_placement_strategy": (("linear",), "each device has experts in a row"),
    "mm_encoder_tp_mode": (("weights",), "each device has a part of a vision tower's weights"),
    "dcp_kv_cache_interleave_size": ((1,), "contexts aren't shared out to devices"),
    "cp_kv_cache_interleave_size": ((1,), "contexts aren't shared out to devices"),
    "max_cpu_loras": ((), "beside max_loras no adapter is kept: it is read again when needed"),
    "lora_dtype": (("auto",), "adapters are kept in the model's dtype"),
    "fully_sharded_loras": ((False,), "an adapter is shared out as its linears are"),
    "specialize_active_lora": ((False,), _KERNELS),
    "safetensors_load_strategy": (("lazy",), _FILES),
    "ignore_patterns": ((), _FILES),
    "model_loader_extra_config": (({},), _FILES),
    "pt_load_map_location": ((), _FILES),
    "max_parallel_loading_workers": ((), _FILES),
    "use_tqdm_on_load": ((True,), "a bar of the load is shown in terminals and notebooks"),
    "mm_processor_cache_type": ((), _PIXELS),
    "mm_shm_cache_max_object_size_mb": ((), _PIXELS),
    "skip_mm_profiling": ((False,), "memory for a vision tower is planned by its sizes"),
    "kv_offloading_backend": (("native",), "the engine copies KV blocks by itself"),
    "mamba_cache_dtype": (("auto",), _NO_MAMBA),
    "mamba_ssm_cache_dtype": (("auto",), _NO_MAMBA),
    "mamba_block_size": ((), _NO_MAMBA),
    "mamba_cache_mode": (("none",), _NO_MAMBA),
}
_CONTEXTS = "contexts that are shared out to devices"
_MACHINES = "one model on several machines (docs/cluster.md has several engines)"
_RANKS = "replicas that other processes drive (data_parallel_size has them in this one)"
_EMBEDS = "prompts that are given as embeddings"
_TRACES = "traces for OpenTelemetry"
_TRANSFER = "KV blocks that other engines send or take"
_WEIGHTS = "weights that change or move while the model runs"
# Values that say what is so in any case, and what others would need.
_MISSING: dict[str, tuple[tuple[Any, ...], str]] = {
    "skip_tokenizer_init": ((False,), "models without their tokenizer (pass token ids instead)"),
    "tokenizer_revision": ((), "a revision for the tokenizer alone (revision is for both)"),
    "hf_token": ((), "a token as an argument (set HF_TOKEN in the environment)"),
    "hf_overrides": (({},), "other values for config.json (change the file in a copy)"),
    "hf_config_path": ((), "a config.json from elsewhere (change the file in a copy)"),
    "config_format": (("auto", "hf"), "other files of a model than Hugging Face's"),
    "download_dir": ((), "a folder for downloads (set HF_HOME in the environment)"),
    "pooler_config": ((), "pooling by arguments (the model's 1_Pooling/config.json says it)"),
    "pipeline_parallel_size": ((1,), "pipelines (tensor_parallel_size shares a model out)"),
    "prefill_context_parallel_size": ((1,), _CONTEXTS),
    "decode_context_parallel_size": ((1,), _CONTEXTS),
    "nnodes": ((1,), _MACHINES),
    "node_rank": ((0,), _MACHINES),
    "data_parallel_rank": ((), _RANKS),
    "data_parallel_start_rank": ((), _RANKS),
    "data_parallel_hybrid_lb": ((False,), _RANKS),
    "data_parallel_external_lb": ((False,), _RANKS),
    "cpu_offload_gb": ((0,), "weights that are kept in main memory beside a GPU"),
    "generation_config": (("auto",), "other generation configs than the folder's"),
    "override_generation_config": (({},), "such overrides (SamplingParams has the values)"),
    "enable_prompt_embeds": ((False,), _EMBEDS),
    "enable_mm_embeds": ((False,), "images and clips that are given as embeddings"),
    "interleave_mm_strings": ((False,), "marks that are put into texts (pass content parts)"),
    "media_io_kwargs": (({},), "such choices (mm_processor_kwargs has what there is)"),
    "video_pruning_rate": ((0,), "clips of which parts are left out"),
    "mm_encoder_only": ((False,), "vision towers without their model"),
    "io_processor_plugin": ((), "plug-ins for prompts and outputs"),
    "default_mm_loras": ((), "adapters that images or clips choose (lora_request names one)"),
    "enable_tower_connector_lora": ((False,), "adapters for vision towers"),
    "enable_return_routed_experts": ((False,), "the output of experts' numbers"),
    "disable_sliding_window": ((False,), "models without their sliding windows"),
    "structured_outputs_config": (
        ({},),
        "this argument (guided_decoding_backend, guided_decoding_disable_any_whitespace and "
        "reasoning_parser say the same)",
    ),
    "reasoning_parser_plugin": (
        (),
        "such plug-ins (tool_parser_plugin's file may have both)",
    ),
    "logits_processor_pattern": ((), "Python code that runs between steps"),
    "otlp_traces_endpoint": ((), _TRACES),
    "collect_detailed_traces": ((), _TRACES),
    "profiler_config": (
        ({},),
        "a profiler (LLM.get_metrics() has counters; perf and Nsight Systems see the process)",
    ),
    "scheduling_policy": (("fcfs",), "priorities of requests here (headrace.Engine.submit has)"),
    "scheduler_cls": ((), "other schedulers"),
    "worker_extension_cls": (("",), "Python code in the engine"),
    "kv_transfer_config": ((), _TRANSFER),
    "kv_events_config": ((), "events of KV blocks"),
    "ec_transfer_config": ((), _TRANSFER),
    "weight_transfer_config": ((), _WEIGHTS),
    "enable_sleep_mode": ((False,), _WEIGHTS),
    "override_attention_dtype": ((), "another dtype for attention alone"),
    "calculate_kv_scales": ((False,), "scales of the KV cache that are found by running"),
    "kv_sharing_fast_prefill": ((False,), "layers that are left out of prefills"),
    "additional_config": (({},), "arguments of other platforms"),
}
# What a checkpoint is quantized by stands in its files.
_OF_CHECKPOINTS = (
    "awq",
    "awq_marlin",
    "compressed-tensors",
    "gptq",
    "gptq_marlin",
    "mxfp4",
)
_DTYPES = {"half": "float16", "float": "float32"}
_KV_CACHE_DTYPES = {"fp8_e4m3": "fp8"}
VLLM_NAMES = frozenset({*_RENAMED, *_NO_EFFECT, *_MISSING, "load_format"})


class TakesVllmNames(type):
    """The class of EngineArgs, which may be called by vLLM's names, too."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        check_known("EngineArgs", kwargs, cls.__dict__["__dataclass_fields__"])
        return super().__call__(*args, **own_arguments(kwargs))


def check_known(call: str, kwargs: Iterable[str], own: Iterable[str]) -> None:
    """Raises TypeError for a name that is neither in `own` nor vLLM's, with the nearest one."""
    names = [*own, *VLLM_NAMES]
    for name in kwargs:
        if name not in names:
            hint = did_you_mean(name, names)
            raise TypeError(f"{call}() got an unexpected keyword argument {quoted(name)}{hint}")


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
        warn_caller(
            f"quantization={quoted(named)} has no effect: a checkpoint's files say how it is "
            "quantized"
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
        warn_caller(f"{name}={quoted(value)} has no effect: {why}")


def _rename(own: dict[str, Any], name: str, value: Any) -> None:
    here, default = _RENAMED[name]
    if own.get(here, default) != default:
        raise TypeError(f"{name} and {here} are the same: give one")
    own[here] = value


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

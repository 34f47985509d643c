"""Keywords of `LLM` by vLLM's names: headrace.options.vllm_args says what becomes of them."""

from __future__ import annotations

from typing import Any

from headrace.options.other_engine_args import OtherEngineArgs


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
    mm_processor_cache_gb: float
    kv_offloading_size: float | None
    max_cpu_loras: int | None
    lora_dtype: Any
    fully_sharded_loras: bool
    specialize_active_lora: bool
    enable_log_requests: bool
    disable_log_requests: bool
    max_log_len: int | None
    aggregate_engine_logging: bool
    show_hidden_metrics_for_version: str | None
    kv_cache_metrics: bool
    kv_cache_metrics_sample: float
    cudagraph_metrics: bool
    enable_layerwise_nvtx_tracing: bool
    enable_mfu_metrics: bool
    enable_logging_iteration_details: bool
    enable_mm_processor_stats: bool
    cudagraph_capture_sizes: Any
    max_cudagraph_capture_size: int | None
    optimization_level: Any
    enable_dbo: bool
    ubatch_size: int
    dbo_decode_token_threshold: int
    dbo_prefill_token_threshold: int
    disable_hybrid_kv_cache_manager: bool | None
    disable_cascade_attn: bool
    attention_config: Any
    attention_backend: Any
    mm_encoder_attn_backend: Any
    prefix_caching_hash_algo: str
    stream_interval: int
    master_addr: str
    master_port: int
    data_parallel_size_local: int | None
    data_parallel_address: str | None
    data_parallel_rpc_port: int | None
    data_parallel_backend: str
    disable_nccl_for_dp_synchronization: bool | None
    all2all_backend: str | None
    expert_placement_strategy: str
    ray_workers_use_nsight: bool
    mm_encoder_tp_mode: str
    dcp_kv_cache_interleave_size: int
    cp_kv_cache_interleave_size: int
    code_revision: str | None
    allow_deprecated_quantization: bool
    safetensors_load_strategy: str | None
    ignore_patterns: Any
    model_loader_extra_config: Any
    pt_load_map_location: Any
    max_parallel_loading_workers: int | None
    use_tqdm_on_load: bool
    mm_processor_cache_type: str | None
    mm_shm_cache_max_object_size_mb: int
    skip_mm_profiling: bool
    kv_offloading_backend: str
    mamba_cache_dtype: str
    mamba_ssm_cache_dtype: str
    mamba_block_size: int | None
    mamba_cache_mode: str
    hf_config_path: str | None
    config_format: str
    download_dir: str | None
    enable_prompt_embeds: bool
    enable_mm_embeds: bool
    interleave_mm_strings: bool
    media_io_kwargs: Any
    video_pruning_rate: float | None
    io_processor_plugin: str | None
    mm_encoder_only: bool
    default_mm_loras: Any
    enable_tower_connector_lora: bool
    enable_return_routed_experts: bool
    disable_sliding_window: bool
    prefill_context_parallel_size: int
    decode_context_parallel_size: int
    nnodes: int
    node_rank: int
    data_parallel_rank: int | None
    data_parallel_start_rank: int | None
    data_parallel_hybrid_lb: bool
    data_parallel_external_lb: bool
    structured_outputs_config: Any
    reasoning_parser_plugin: str | None
    logits_processor_pattern: str | None
    otlp_traces_endpoint: str | None
    collect_detailed_traces: Any
    profiler_config: Any
    scheduling_policy: str
    scheduler_cls: Any
    worker_extension_cls: str
    kv_transfer_config: Any
    kv_events_config: Any
    ec_transfer_config: Any
    weight_transfer_config: Any
    enable_sleep_mode: bool
    override_attention_dtype: str | None
    calculate_kv_scales: bool
    kv_sharing_fast_prefill: bool
    additional_config: Any

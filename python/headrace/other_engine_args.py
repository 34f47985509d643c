"""Keywords of `LLM` beyond its signature: FastDeploy's, whose rules EngineArgs knows."""

from __future__ import annotations

from typing import Any, TypedDict


class OtherEngineArgs(TypedDict, total=False):
    """For type checkers and editors: a name that is not here is marked. At run time EngineArgs
    accepts, warns or refuses."""

    logits_processors: list[Any] | None
    tensor_parallel_size: int
    data_parallel_size: int
    enable_expert_parallel: bool
    reasoning_parser: str | None
    tool_call_parser: str | None
    tool_parser_plugin: str | None
    enable_early_stop: bool
    early_stop_config: Any
    enable_mm: bool
    routing_replay_config: Any
    enable_keep_sampling_mask: bool
    enable_entropy: bool
    runner: str
    convert: str
    override_pooler_config: Any
    model_impl: str
    use_internode_ll_two_stage: bool
    kv_cache_ratio: float
    static_decode_blocks: int
    prealloc_dec_block_slot_num_threshold: int
    enable_chunked_prefill: bool | None
    max_num_partial_prefills: int
    max_long_partial_prefills: int
    long_prefill_token_threshold: int
    enable_output_caching: bool | None
    use_warmup: int
    graph_optimization_config: Any
    plas_attention_config: Any
    disable_custom_all_reduce: bool
    enable_overlap_schedule: bool
    lm_head_fp32: bool
    moe_gate_fp32: bool
    limit_mm_per_prompt: Any
    mm_processor_kwargs: Any
    max_encoder_cache: int
    max_processor_cache: float
    deploy_modality: str
    ips: Any
    port: Any
    metrics_port: Any
    engine_worker_queue_port: Any
    cache_queue_port: Any
    pd_comm_port: Any
    rdma_comm_ports: Any
    api_key: Any
    served_model_name: str | None
    splitwise_role: str
    router: Any
    scheduler_name: str
    scheduler_config: Any

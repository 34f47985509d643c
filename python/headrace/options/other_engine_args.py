"""Keywords of `LLM` beyond its signature: FastDeploy's, whose rules EngineArgs knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class OtherEngineArgs(TypedDict, total=False):
    """For type checkers and editors: a name that is not here is marked. At run time EngineArgs
    accepts, warns or refuses."""

    logits_processors: list[Any] | None
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
    enable_eplb: bool
    eplb_config: Any
    task: str
    model_config_name: str
    tokenizer_base_url: str | None
    dynamic_load_weight: bool
    rsync_config: Any
    kvcache_storage_backend: str | None
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
    media_limits: Mapping[str, float] | None
    max_encoder_cache: int
    num_state_slots: int
    snapshot_interval: int
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
    scheduler_max_size: int
    scheduler_ttl: int
    scheduler_host: str
    scheduler_port: int
    scheduler_db: int
    scheduler_password: str | None
    scheduler_topic: str
    scheduler_min_load_score: float
    scheduler_load_shards_num: int
    scheduler_sync_period: int
    scheduler_expire_period: int
    scheduler_release_load_expire_period: int
    scheduler_reader_parallel: int
    scheduler_writer_parallel: int
    scheduler_reader_batch_size: int
    scheduler_writer_batch_size: int
    benchmark_metrics_config: Any
    cache_transfer_protocol: str
    write_policy: str
    load_strategy: str
    local_data_parallel_id: int
    skip_port_check: bool
    shutdown_comm_group_if_worker_idle: bool | None
    enable_flashinfer_allreduce_fusion: bool
    disable_sequence_parallel_moe: bool
    ep_prefill_use_worst_num_tokens: bool
    enable_chunked_moe: bool
    chunked_moe_size: int
    enable_moe_scores_elementwise_fuse: bool
    disable_chunked_mm_input: bool

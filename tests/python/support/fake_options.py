"""Options of the fake engine. Written by tools/generate_options.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.named_enum import NamedIntEnum


class LogprobsKind(NamedIntEnum):
    RAW_LOGPROBS = 0
    RAW_LOGITS = 1
    PROCESSED_LOGPROBS = 2
    PROCESSED_LOGITS = 3
    PENALIZED_LOGPROBS = 4


class OutOfBlocks(NamedIntEnum):
    PREEMPT = 0
    INTERRUPT_LONGEST = 1
    INTERRUPT_RANDOM = 2


class Pooling(NamedIntEnum):
    LAST = 0
    MEAN = 1
    CLS = 2


@dataclass(kw_only=True)
class PoolingParams:
    pooling: Pooling = Pooling.LAST
    dimensions: int = 0
    normalize: bool = True
    logit_token_ids: Any = ()
    use_head: bool = False
    second_text_at: int = 0


@dataclass(kw_only=True)
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalize_output_only: bool = False
    no_repeat_ngram_size: int = 0
    logit_bias: Any = ()
    bad_words: Any = ()
    max_tokens: int = 0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: Any = ()
    stop_sequences: Any = ()
    stop_sequences_anywhere: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprobs_kind: LogprobsKind = LogprobsKind.RAW_LOGPROBS
    temperature_scaled_logprobs: bool = False
    top_p_normalized_logprobs: bool = False


@dataclass(kw_only=True)
class SpeculativeOptions:
    method: str = ""
    num_speculative_tokens: int = 8
    min_ngram_size: int = 2
    max_ngram_size: int = 5
    model: str = ""


@dataclass(kw_only=True)
class ModelOptions:
    path: str
    device: str = "auto"
    tensor_parallel_size: int = 1
    devices: Any = ()
    enable_expert_parallel: bool = False
    data_parallel_size: int = 1
    dtype: str = "auto"
    quantization: str = ""
    quantization_group_size: int = 0
    kv_cache_dtype: str = "auto"
    num_threads: int = 0
    cpu_isa: str = ""
    max_model_len: int = 0
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 0
    block_size: int = 64
    num_kv_blocks: int = 0
    kv_cache_bytes: int = 0
    memory_utilization: float = 0.9
    total_memory_ratio: float = 0.0
    memory_leftover_bytes: int = 0
    enable_prefix_caching: bool = True
    num_state_slots: int = 0
    snapshot_interval: int = 0
    swap_space: float = 0.0
    out_of_blocks: OutOfBlocks = OutOfBlocks.PREEMPT
    max_prefill_chunk: int = 0
    packed_weights: str = ""
    packed_copy: bool = False
    max_loras: int = 0
    max_lora_rank: int = 64
    speculative: SpeculativeOptions = field(default_factory=SpeculativeOptions)
    max_encoder_tokens: int = 0
    encoder_cache_bytes: int = 0
    dummy_weights: bool = False

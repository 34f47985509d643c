"""Errors, enumerations and plain data of headrace._core, for the fake engine."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from headrace._core import HeadraceError, InvalidArgumentError
from headrace.named_enum import NamedIntEnum


class Failure(HeadraceError):
    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Refusal(InvalidArgumentError):
    code = "invalid_argument"


class RequestStatus(NamedIntEnum):
    WAITING = 0
    PREFILL = 1
    GENERATING = 2
    FINISHED = 3


class FinishReason(NamedIntEnum):
    NONE = 0
    STOP = 1
    LENGTH = 2
    ABORT = 3
    ERROR = 4
    INTERRUPTED = 5


class ModelState(NamedIntEnum):
    INSTALLED = 0
    RUNNING = 1
    STOPPING = 2
    STOPPED = 3
    FAILED = 4


@dataclass
class MediaRun:
    position: int
    count: int
    first_row: int = 0
    grid: Any = None
    steps: Any = ()


@dataclass
class MediaInput:
    """Keeps what it is given: tests look at it in fake_core.submitted_media."""

    video: bool
    runs: Any
    _: KW_ONLY
    pixels: Any = None
    frames: int = 1
    height: int = 0
    width: int = 0
    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 1
    table: Any = None
    embeddings: Any = None
    key: bytes | None = None

    @property
    def rows(self) -> int:
        return sum(run.count for run in self.runs)


@dataclass
class PositionLogprobs:
    token: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


@dataclass
class Output:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)
    prompt_logprobs: list[PositionLogprobs] = field(default_factory=list)
    finished: bool = False
    finish_reason: FinishReason = FinishReason.NONE
    stop_token: int = -1
    error_code: str = "ok"
    error_message: str = ""
    pooled: list[float] = field(default_factory=list)
    stop_sequence: int = -1


@dataclass
class RequestStats:
    arrival_time: float = 0.0
    first_scheduled_time: float = 0.0
    first_token_time: float = 0.0
    last_token_time: float = 0.0
    finished_time: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    host_cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    replica: int = 0
    image_tokens: int = 0
    video_tokens: int = 0


@dataclass
class ModelInfo:
    name: str = ""
    path: str = ""
    family: str = "toy"
    device: str = "cpu"
    isa: str = "toy"
    dtype: str = "float32"
    kv_cache_dtype: str = "float32"
    quantization: str = ""
    num_parameters: int = 1000
    num_active_parameters: int = 1000
    num_experts: int = 0
    num_active_experts: int = 0
    vocab_size: int = 0
    hidden_size: int = 8
    num_layers: int = 1
    num_heads: int = 1
    num_kv_heads: int = 1
    head_dim: int = 8
    intermediate_size: int = 16
    max_model_len: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    block_size: int = 0
    num_kv_blocks: int = 100
    num_host_kv_blocks: int = 0
    num_kv_groups: int = 1
    kv_numbers: dict[int, int] = field(default_factory=lambda: {0: 16})
    num_state_slots: int = 0
    num_host_state_slots: int = 0
    snapshot_interval: int = 0
    state_slot_bytes: int = 0
    num_threads: int = 1
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    num_nodes: int = 1
    max_loras: int = 0
    max_lora_rank: int = 64
    causal: bool = True
    generates: bool = True
    head_outputs: int = 0
    classifies: bool = False
    classifier_pooling: Any = 2
    tells_pairs: bool = False
    vision: bool = True
    takes_embeddings: bool = True
    max_encoder_tokens: int = 256
    encoder_cache_bytes: int = 1000
    vision_weight_bytes: int = 1000
    weight_bytes: int = 4000
    token_weight_bytes: int = 4000
    mapped_weight_bytes: int = 0
    packed_weights: str = ""
    replaced_kernels: list[str] = field(default_factory=list)
    kv_cache_bytes: int = 6400
    host_kv_cache_bytes: int = 0
    scratch_bytes: int = 100
    reserved_bytes: int = 0
    device_free_bytes: int = 1000
    load_seconds: float = 0.001
    eos_token_ids: list[int] = field(default_factory=list)


@dataclass
class CpuIsaInfo:
    name: str = "toy"
    missing: list[str] = field(default_factory=list)


@dataclass
class CpuInfo:
    brand: str = "Toy"
    isa: str = "toy"
    isas: list[CpuIsaInfo] = field(
        default_factory=lambda: [CpuIsaInfo("toy_plus", ["PLUS"]), CpuIsaInfo()]
    )
    cores: int = 2
    num_threads: int = 2
    numa_nodes: list[str] = field(default_factory=lambda: ["0-1"])
    huge_pages: str = "madvise"


@dataclass
class GpuInfo:
    device: str = "cuda:0"
    name: str = "Toy GPU"
    compute_capability: str = "9.0"
    total_bytes: int = 1 << 30
    unusable: str = ""


@dataclass
class PackReport:
    file: str = ""
    layout: str = "toy-1"
    dtype: str = "float32"
    isa: str = "toy"
    num_tensors: int = 1
    file_bytes: int = 0
    seconds: float = 0.001


@dataclass
class LoraInfo:
    name: str
    path: str
    rank: int = 8
    num_modules: int = 7
    bytes: int = 1000
    live_requests: int = 0


@dataclass
class ModelStats:
    state: ModelState = ModelState.RUNNING
    running_replicas: int = 1
    waiting_requests: int = 0
    running_requests: int = 0
    total_kv_blocks: int = 100
    free_kv_blocks: int = 100
    cached_kv_blocks: int = 0
    cached_host_kv_blocks: int = 0
    total_state_slots: int = 0
    free_state_slots: int = 0
    cached_state_slots: int = 0
    cached_host_state_slots: int = 0
    finished_requests: int = 0
    preemptions: int = 0
    interruptions: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_hit_tokens: int = 0
    prefix_miss_tokens: int = 0
    prefix_host_hit_tokens: int = 0
    kv_blocks_to_host: int = 0
    kv_blocks_from_host: int = 0
    snapshots_saved: int = 0
    snapshots_evicted: int = 0
    snapshots_restored: int = 0
    prefix_unused_tokens: int = 0
    busy_seconds: float = 0.0
    mask_wait_seconds: float = 0.0
    memory_bytes: int = 0
    memory_pool_bytes: int = 0
    mapped_bytes: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    encoded_tokens: int = 0
    encoder_hit_tokens: int = 0
    encoder_cache_bytes: int = 0

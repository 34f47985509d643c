"""The C++ engine (pybind11). No logic lives in the bindings: see cpp/include/headrace/*.h."""

from collections.abc import Callable, Sequence
from typing_extensions import Buffer
from headrace.named_enum import NamedIntEnum

__version__: str

class HeadraceError(RuntimeError):
    """Base of the engine's errors. `code` is the stable name, e.g. "limit_exceeded".

    kInvalidArgument is raised as InvalidArgumentError, which is a ValueError too.
    """

    code: str

class InvalidArgumentError(HeadraceError, ValueError): ...

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

# options: written by tools/generate_options.py
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

class PoolingParams:
    """Embeddings: headrace/pooling_params.h.

    Keyword-only; an unknown one is a TypeError. Values are checked by what takes
    them. Attributes that are sequences are copies.
    """

    pooling: Pooling
    dimensions: int
    normalize: bool
    logit_token_ids: Sequence[int]

    def __init__(
        self,
        *,
        pooling: Pooling = Pooling.LAST,
        dimensions: int = 0,
        normalize: bool = True,
        logit_token_ids: Sequence[int] = (),
    ) -> None: ...

class SamplingParams:
    """How tokens are chosen: headrace/sampling_params.h.

    Keyword-only; an unknown one is a TypeError. Values are checked by what takes
    them. Attributes that are sequences are copies.
    """

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalize_output_only: bool
    no_repeat_ngram_size: int
    logit_bias: Sequence[tuple[int, float]]
    bad_words: Sequence[Sequence[int]]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stop_token_ids: Sequence[int]
    stop_sequences: Sequence[Sequence[int]]
    stop_sequences_anywhere: bool
    logprobs: int | None
    prompt_logprobs: int | None
    logprobs_kind: LogprobsKind
    temperature_scaled_logprobs: bool
    top_p_normalized_logprobs: bool

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        penalize_output_only: bool = False,
        no_repeat_ngram_size: int = 0,
        logit_bias: Sequence[tuple[int, float]] = (),
        bad_words: Sequence[Sequence[int]] = (),
        max_tokens: int = 0,
        min_tokens: int = 0,
        ignore_eos: bool = False,
        stop_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        stop_sequences_anywhere: bool = False,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        logprobs_kind: LogprobsKind = LogprobsKind.RAW_LOGPROBS,
        temperature_scaled_logprobs: bool = False,
        top_p_normalized_logprobs: bool = False,
    ) -> None: ...

class SpeculativeOptions:
    """Guessing of tokens: headrace/options.h.

    Keyword-only; an unknown one is a TypeError. Values are checked by what takes
    them. Attributes that are sequences are copies.
    """

    method: str
    num_speculative_tokens: int
    min_ngram_size: int
    max_ngram_size: int
    model: str

    def __init__(
        self,
        *,
        method: str = "",
        num_speculative_tokens: int = 8,
        min_ngram_size: int = 2,
        max_ngram_size: int = 5,
        model: str = "",
    ) -> None: ...

class ModelOptions:
    """How a model is loaded and run: headrace/options.h.

    Keyword-only; an unknown one is a TypeError. Values are checked by what takes
    them. Attributes that are sequences are copies.
    """

    path: str
    device: str
    tensor_parallel_size: int
    devices: Sequence[str]
    enable_expert_parallel: bool
    data_parallel_size: int
    dtype: str
    quantization: str
    quantization_group_size: int
    kv_cache_dtype: str
    num_threads: int
    cpu_isa: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_kv_blocks: int
    kv_cache_bytes: int
    memory_utilization: float
    total_memory_ratio: float
    memory_leftover_bytes: int
    enable_prefix_caching: bool
    swap_space: float
    out_of_blocks: OutOfBlocks
    max_prefill_chunk: int
    packed_weights: str
    packed_copy: bool
    max_loras: int
    max_lora_rank: int
    speculative: SpeculativeOptions
    max_encoder_tokens: int
    encoder_cache_bytes: int
    dummy_weights: bool

    def __init__(
        self,
        *,
        path: str,
        device: str = "auto",
        tensor_parallel_size: int = 1,
        devices: Sequence[str] = (),
        enable_expert_parallel: bool = False,
        data_parallel_size: int = 1,
        dtype: str = "auto",
        quantization: str = "",
        quantization_group_size: int = 0,
        kv_cache_dtype: str = "auto",
        num_threads: int = 0,
        cpu_isa: str = "",
        max_model_len: int = 0,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 0,
        block_size: int = 64,
        num_kv_blocks: int = 0,
        kv_cache_bytes: int = 0,
        memory_utilization: float = 0.9,
        total_memory_ratio: float = 0.0,
        memory_leftover_bytes: int = 0,
        enable_prefix_caching: bool = True,
        swap_space: float = 0.0,
        out_of_blocks: OutOfBlocks = OutOfBlocks.PREEMPT,
        max_prefill_chunk: int = 0,
        packed_weights: str = "",
        packed_copy: bool = False,
        max_loras: int = 0,
        max_lora_rank: int = 64,
        speculative: SpeculativeOptions = ...,
        max_encoder_tokens: int = 0,
        encoder_cache_bytes: int = 0,
        dummy_weights: bool = False,
    ) -> None: ...
# end of options

class MediaRun:
    """A run of an item's rows in a prompt: headrace/media_input.h."""

    position: int
    count: int
    first_row: int
    grid: tuple[int, int, int] | None
    steps: list[int]

    def __init__(
        self,
        position: int,
        count: int,
        first_row: int = 0,
        grid: Sequence[int] | None = None,
        steps: Sequence[int] = (),
    ) -> None:
        """grid: rows over time, height and width, whose product is `count`; None: the positions of
        text. steps: what each grid over time adds to the axis of time."""

class MediaInput:
    """An image or a clip of a request: headrace/media_input.h. What it is given is copied; it is
    made once and may be submitted many times."""

    video: bool
    runs: list[MediaRun]
    key: bytes

    def __init__(
        self,
        video: bool,
        runs: Sequence[MediaRun],
        *,
        pixels: Buffer | None = None,
        frames: int = 1,
        height: int = 0,
        width: int = 0,
        patch_size: int = 14,
        merge_size: int = 2,
        temporal_patch_size: int = 1,
        table: Buffer | None = None,
        embeddings: Buffer | None = None,
        key: bytes | None = None,
    ) -> None:
        """Either pixels or embeddings.

        pixels: RGB bytes [frames, height, width, 3], resized. table: 768 float32, as bytes: what a
            byte of each channel becomes.
        embeddings: float32 [rows, hidden_size], or [1 + added, rows, hidden_size] with what is
            added behind the first layers: of a model with a tower, behind as many as that does.
        key: 32 bytes that name the content; None, or all zero: the engine digests it.
        """

class PositionLogprobs:
    token: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]

class Output:
    """headrace/result_queue.h. Each access to a list makes a new one: read it once."""

    token_ids: list[int]
    logprobs: list[PositionLogprobs]
    prompt_logprobs: list[PositionLogprobs]
    pooled: list[float]
    finished: bool
    finish_reason: FinishReason
    stop_token: int
    error_code: str
    error_message: str

class RequestStats:
    arrival_time: float
    first_scheduled_time: float
    first_token_time: float
    last_token_time: float
    finished_time: float
    prompt_tokens: int
    cached_tokens: int
    host_cached_tokens: int
    generated_tokens: int
    preemptions: int
    replica: int
    image_tokens: int
    video_tokens: int

class ResultQueue:
    def get(self, timeout: float | None = None) -> Output | None:
        """Waits (GIL released, interruptible by signals); None only if `timeout` seconds passed."""
    def get_nowait(self) -> Output | None:
        """None if nothing new is there; so, too, once the last output has been taken."""
    def status(self) -> RequestStatus: ...
    def finish_reason(self) -> FinishReason: ...
    def generated_length(self) -> int: ...
    def stats(self) -> RequestStats: ...
    def on_output(self, callback: Callable[[], None] | None) -> None:
        """`callback` runs on the engine's thread whenever new output is there, and once at once if
        some is already. What it raises goes to sys.unraisablehook. None unsets; returns when no
        call of the old one is running. Dropped after the last output.
        """

class Request:
    @property
    def id(self) -> str: ...
    @property
    def seed(self) -> int: ...
    def results(self) -> ResultQueue: ...
    def cancel(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...

class OutputSelector:
    """Waits for output of any of many requests: one waiting thread, or one file descriptor of an
    event loop, for a whole batch.

    A request added here reports its tag each time new output is there (or, with `only_end`, once
    it has finished); the caller then reads the request's queue with get_nowait().
    """

    def __init__(self) -> None: ...
    def add(self, queue: ResultQueue, tag: int, *, only_end: bool = False) -> None: ...
    def remove(self, tag: int) -> None: ...
    def take(self) -> list[int]:
        """The tags reported so far, without waiting."""
    def fileno(self) -> int:
        """Readable while there are tags to take. Neither read nor close it."""
    def wait(self, timeout: float | None = None) -> list[int]:
        """Tags with new output, each once, in order of arrival; [] if `timeout` seconds passed.

        The GIL is released; KeyboardInterrupt is raised within 100 ms of a signal.
        """

class ModelInfo:
    name: str
    path: str
    family: str
    device: str
    isa: str
    dtype: str
    kv_cache_dtype: str
    quantization: str
    num_parameters: int
    num_active_parameters: int
    num_experts: int
    num_active_experts: int
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_kv_blocks: int
    num_host_kv_blocks: int
    num_threads: int
    tensor_parallel_size: int
    data_parallel_size: int
    num_nodes: int
    max_loras: int
    max_lora_rank: int
    causal: bool
    generates: bool
    vision: bool
    takes_embeddings: bool
    max_encoder_tokens: int
    encoder_cache_bytes: int
    vision_weight_bytes: int
    weight_bytes: int
    token_weight_bytes: int
    mapped_weight_bytes: int
    packed_weights: str
    replaced_kernels: list[str]
    kv_cache_bytes: int
    host_kv_cache_bytes: int
    scratch_bytes: int
    reserved_bytes: int
    device_free_bytes: int
    load_seconds: float
    eos_token_ids: list[int]

class LoraInfo:
    name: str
    path: str
    rank: int
    num_modules: int
    bytes: int
    live_requests: int

class ModelStats:
    state: ModelState
    running_replicas: int
    waiting_requests: int
    running_requests: int
    total_kv_blocks: int
    free_kv_blocks: int
    cached_kv_blocks: int
    cached_host_kv_blocks: int
    finished_requests: int
    preemptions: int
    interruptions: int
    steps: int
    prompt_tokens: int
    generated_tokens: int
    prefix_hit_tokens: int
    prefix_miss_tokens: int
    prefix_host_hit_tokens: int
    kv_blocks_to_host: int
    kv_blocks_from_host: int
    busy_seconds: float
    mask_wait_seconds: float
    memory_bytes: int
    memory_pool_bytes: int
    mapped_bytes: int
    drafted_tokens: int
    accepted_tokens: int
    encoded_tokens: int
    encoder_hit_tokens: int
    encoder_cache_bytes: int

PACKED_FILE_NAME: str

class PackReport:
    file: str
    layout: str
    dtype: str
    isa: str
    num_tensors: int
    file_bytes: int
    seconds: float

def pack_model(
    options: ModelOptions,
    file: str,
    *,
    progress: Callable[[str, int, int], object] | None = None,
) -> PackReport:
    """headrace/pack.h. `progress` and signals: as for Engine.install_model."""

def check_packed(options: ModelOptions) -> None:
    """headrace/pack.h: raises what loading options.packed_weights would. The GIL is released."""

def resize_rgb(
    pixels: Buffer, height: int, width: int, to_height: int, to_width: int, filter: int
) -> bytes:
    """headrace/media.h; `filter` is the number of a ResizeFilter. The GIL is released."""

def normalize_patches(
    pixels: Buffer,
    frames: int,
    height: int,
    width: int,
    *,
    patch_size: int,
    merge_size: int,
    temporal_patch_size: int,
    table: Buffer,
) -> bytes:
    """headrace/media.h: the floats as bytes. The GIL is released."""

class GrammarKind(NamedIntEnum):
    JSON_SCHEMA = 0
    REGEX = 1
    LARK = 2
    LLGUIDANCE = 3

class TokenConstraint:
    """Which tokens an output may have: headrace/token_constraint.h. For any number of requests."""

def limit_thinking(
    *,
    begin: Sequence[int],
    end: Sequence[int],
    closing: Sequence[int],
    max_tokens: int,
    answer: TokenConstraint | None,
) -> TokenConstraint:
    """headrace/thinking.h."""

class GrammarCompiler:
    """Makes constraints from grammars, for one vocabulary: headrace/grammar.h."""

    def __init__(
        self,
        library: str,
        *,
        tokens: Sequence[bytes],
        first_tokens: Sequence[tuple[int, bytes]],
        special_tokens: Sequence[tuple[int, str]],
        special_restarts: bool,
    ) -> None: ...
    def compile(self, kind: GrammarKind, text: str) -> TokenConstraint: ...
    @property
    def library_version(self) -> str: ...

class Engine:
    def __init__(self, *, log_sink: Callable[[str, str], None] | None = None) -> None:
        """`log_sink(level, message)` gets the engine's log lines; level as in logging, lower case.

        The engine keeps the sink, out of the garbage collector's sight, until it is collected: a
        sink that refers to the engine keeps both alive.
        """
    def install_model(
        self,
        name: str,
        options: ModelOptions,
        *,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        """`progress(stage, bytes_done, bytes_total)` is called on this thread, about ten times a
        second and at the end; stage is headrace::load_stage_name's. What it raises, a signal on the
        main thread and close() end the load.
        """
    def start_model(self, name: str) -> None: ...
    def stop_model(self, name: str, timeout: float | None = None) -> bool:
        """False if `timeout` seconds passed first. Interruptible by signals; in both cases the
        model goes on stopping.
        """
    def release_model(self, name: str) -> None: ...
    def submit(
        self,
        model: str,
        *,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        request_id: str = "",
        priority: int = 0,
        timeout: float | None = None,
        constraint: TokenConstraint | None = None,
        lora_name: str = "",
        pooling: PoolingParams | None = None,
        media: Sequence[MediaInput] = (),
    ) -> Request: ...
    def load_lora(self, model: str, name: str, path: str) -> None:
        """Reads a PEFT folder; requests use it by `lora_name`. The model goes on meanwhile."""
    def unload_lora(self, model: str, name: str) -> None: ...
    def loras(self, model: str) -> list[LoraInfo]: ...
    def model_info(self, name: str) -> ModelInfo: ...
    def model_stats(self, name: str) -> ModelStats: ...
    def models(self) -> list[str]: ...
    def clear_prefix_cache(self, name: str) -> None: ...
    def close(self) -> None:
        """Cancels and releases everything; later calls raise. Idempotent. Also done at exit."""

def available_cpu_isas() -> list[str]: ...

class CpuIsaInfo:
    name: str
    missing: list[str]

class CpuInfo:
    brand: str
    isa: str
    isas: list[CpuIsaInfo]
    cores: int
    num_threads: int
    numa_nodes: list[str]
    huge_pages: str

def describe_cpu() -> CpuInfo: ...

class GpuInfo:
    device: str
    name: str
    compute_capability: str
    total_bytes: int
    unusable: str

def describe_gpus() -> list[GpuInfo]: ...
def model_family(folder: str) -> ModelInfo:
    """Shapes of a model folder from its config alone; no weights are read.

    Fields that only an installed model has (name, device, memory...) are empty or 0.
    """

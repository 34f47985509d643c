"""The C++ engine (pybind11). No logic lives in the bindings: see cpp/include/headrace/*.h."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex
from typing_extensions import Buffer
from headrace.named_enum import NamedIntEnum

__version__: str

class HeadraceError(RuntimeError):
    """Base of the engine's errors. `code` is the stable name, e.g. "limit_exceeded".

    kInvalidArgument is raised as InvalidArgumentError, which is a ValueError too.
    """

    code: str

class InvalidArgumentError(HeadraceError, ValueError): ...

class ChatTemplate:
    def __init__(self, text: str) -> None: ...
    def variables(self) -> list[str]: ...
    def render(self, variables: dict[str, Any]) -> str: ...

def chat_templates(folder: str) -> dict[str, str]: ...

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
    use_head: bool
    second_text_at: int

    def __init__(
        self,
        *,
        pooling: Pooling = Pooling.LAST,
        dimensions: int = 0,
        normalize: bool = True,
        logit_token_ids: Sequence[int] = (),
        use_head: bool = False,
        second_text_at: int = 0,
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
    num_state_slots: int
    snapshot_interval: int
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
        num_state_slots: int = 0,
        snapshot_interval: int = 0,
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

    @property
    def position(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def first_row(self) -> int: ...
    @property
    def grid(self) -> tuple[int, int, int] | None: ...
    @property
    def steps(self) -> list[int]: ...
    def __init__(
        self,
        position: int,
        count: int,
        first_row: int = 0,
        grid: Sequence[int] | None = None,
        steps: Sequence[int] = [],
    ) -> None:
        """grid: rows over time, height and width, whose product is `count`; None: the positions of
        text. steps: what each grid over time adds to the axis of time."""

class MediaInput:
    """An image or a clip of a request: headrace/media_input.h. What it is given is copied; it is
    made once and may be submitted many times."""

    @property
    def video(self) -> bool: ...
    @property
    def runs(self) -> list[MediaRun]: ...
    @property
    def key(self) -> bytes: ...
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
    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def top(self) -> list[tuple[int, float]]: ...

class Output:
    """headrace/result_queue.h. Each access to a list makes a new one: read it once."""

    @property
    def token_ids(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[PositionLogprobs]: ...
    @property
    def prompt_logprobs(self) -> list[PositionLogprobs]: ...
    @property
    def pooled(self) -> list[float]: ...
    @property
    def finished(self) -> bool: ...
    @property
    def finish_reason(self) -> FinishReason: ...
    @property
    def stop_token(self) -> int: ...
    @property
    def stop_sequence(self) -> int: ...
    @property
    def error_code(self) -> str: ...
    @property
    def error_message(self) -> str: ...

class RequestStats:
    @property
    def arrival_time(self) -> float: ...
    @property
    def first_scheduled_time(self) -> float: ...
    @property
    def first_token_time(self) -> float: ...
    @property
    def last_token_time(self) -> float: ...
    @property
    def finished_time(self) -> float: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def host_cached_tokens(self) -> int: ...
    @property
    def generated_tokens(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def replica(self) -> int: ...
    @property
    def image_tokens(self) -> int: ...
    @property
    def video_tokens(self) -> int: ...

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
    def wake(self) -> None:
        """Ends the wait that a thread is in, or else the next one."""
    def take(self) -> list[int]:
        """The tags reported so far, without waiting."""
    def fileno(self) -> int:
        """Readable while there are tags to take. Neither read nor close it."""
    def wait(self, timeout: float | None = None) -> list[int]:
        """Tags with new output, each once, in order of arrival; [] if `timeout` seconds passed.

        The GIL is released; KeyboardInterrupt is raised within 100 ms of a signal.
        """

class ModelInfo:
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def kv_cache_dtype(self) -> str: ...
    @property
    def quantization(self) -> str: ...
    @property
    def num_parameters(self) -> int: ...
    @property
    def num_active_parameters(self) -> int: ...
    @property
    def num_experts(self) -> int: ...
    @property
    def num_active_experts(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def num_kv_blocks(self) -> int: ...
    @property
    def num_host_kv_blocks(self) -> int: ...
    @property
    def num_kv_groups(self) -> int: ...
    @property
    def kv_numbers(self) -> dict[int, int]: ...
    @property
    def num_state_slots(self) -> int: ...
    @property
    def num_host_state_slots(self) -> int: ...
    @property
    def snapshot_interval(self) -> int: ...
    @property
    def state_slot_bytes(self) -> int: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def tensor_parallel_size(self) -> int: ...
    @property
    def data_parallel_size(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def max_loras(self) -> int: ...
    @property
    def max_lora_rank(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    @property
    def generates(self) -> bool: ...
    @property
    def head_outputs(self) -> int: ...
    @property
    def classifies(self) -> bool: ...
    @property
    def classifier_pooling(self) -> Pooling: ...
    @property
    def tells_pairs(self) -> bool: ...
    @property
    def vision(self) -> bool: ...
    @property
    def takes_embeddings(self) -> bool: ...
    @property
    def max_encoder_tokens(self) -> int: ...
    @property
    def encoder_cache_bytes(self) -> int: ...
    @property
    def vision_weight_bytes(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def token_weight_bytes(self) -> int: ...
    @property
    def mapped_weight_bytes(self) -> int: ...
    @property
    def packed_weights(self) -> str: ...
    @property
    def replaced_kernels(self) -> list[str]: ...
    @property
    def kv_cache_bytes(self) -> int: ...
    @property
    def host_kv_cache_bytes(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def reserved_bytes(self) -> int: ...
    @property
    def device_free_bytes(self) -> int: ...
    @property
    def load_seconds(self) -> float: ...
    @property
    def eos_token_ids(self) -> list[int]: ...

class LoraInfo:
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def num_modules(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def live_requests(self) -> int: ...

class ModelStats:
    @property
    def state(self) -> ModelState: ...
    @property
    def running_replicas(self) -> int: ...
    @property
    def waiting_requests(self) -> int: ...
    @property
    def running_requests(self) -> int: ...
    @property
    def total_kv_blocks(self) -> int: ...
    @property
    def free_kv_blocks(self) -> int: ...
    @property
    def cached_kv_blocks(self) -> int: ...
    @property
    def cached_host_kv_blocks(self) -> int: ...
    @property
    def total_state_slots(self) -> int: ...
    @property
    def free_state_slots(self) -> int: ...
    @property
    def cached_state_slots(self) -> int: ...
    @property
    def cached_host_state_slots(self) -> int: ...
    @property
    def finished_requests(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def interruptions(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def generated_tokens(self) -> int: ...
    @property
    def prefix_hit_tokens(self) -> int: ...
    @property
    def prefix_miss_tokens(self) -> int: ...
    @property
    def prefix_host_hit_tokens(self) -> int: ...
    @property
    def kv_blocks_to_host(self) -> int: ...
    @property
    def kv_blocks_from_host(self) -> int: ...
    @property
    def snapshots_saved(self) -> int: ...
    @property
    def snapshots_evicted(self) -> int: ...
    @property
    def snapshots_restored(self) -> int: ...
    @property
    def prefix_unused_tokens(self) -> int: ...
    @property
    def busy_seconds(self) -> float: ...
    @property
    def mask_wait_seconds(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def memory_pool_bytes(self) -> int: ...
    @property
    def mapped_bytes(self) -> int: ...
    @property
    def drafted_tokens(self) -> int: ...
    @property
    def accepted_tokens(self) -> int: ...
    @property
    def encoded_tokens(self) -> int: ...
    @property
    def encoder_hit_tokens(self) -> int: ...
    @property
    def encoder_cache_bytes(self) -> int: ...

PACKED_FILE_NAME: str

class PackReport:
    @property
    def file(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def num_tensors(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...

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

class TokenMatcher:
    """Follows one output: headrace/token_constraint.h."""

    def next(self, ids: int) -> tuple[list[int], bool]:
        """Those of the ids 0 to ids - 1 that may come next, and whether the output may end."""
    def append(self, token: int) -> None: ...

class TokenConstraint:
    """Which tokens an output may have: headrace/token_constraint.h. For any number of requests."""

    def start(self) -> TokenMatcher: ...

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
    """Makes constraints from grammars, for one vocabulary: headrace/grammar.h. Without a library
    by the engine of its own, for JSON schemas and regular expressions."""

    def __init__(
        self,
        library: str | None,
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
    @property
    def name(self) -> str: ...
    @property
    def missing(self) -> list[str]: ...

class CpuInfo:
    @property
    def brand(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def isas(self) -> list[CpuIsaInfo]: ...
    @property
    def cores(self) -> int: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def numa_nodes(self) -> list[str]: ...
    @property
    def huge_pages(self) -> str: ...

def describe_cpu() -> CpuInfo: ...

class GpuInfo:
    @property
    def device(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def compute_capability(self) -> str: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def unusable(self) -> str: ...

def describe_gpus() -> list[GpuInfo]: ...
def model_family(folder: str) -> ModelInfo:
    """Shapes of a model folder from its config alone; no weights are read.

    Fields that only an installed model has (name, device, memory...) are empty or 0.
    """

class TextTokenizer:
    """The tokenizer of a model folder: headrace/text.h."""

    def __init__(self, folder: str) -> None: ...
    def encode(
        self,
        text: str,
        add_special_tokens: bool = False,
        special_as_text: bool = False,
        max_tokens: int = 0,
    ) -> list[int]: ...
    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = False, special_as_text: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]: ...
    def join_pair(
        self, first: Sequence[int], second: Sequence[int]
    ) -> tuple[list[int], list[int]]: ...
    def decode(self, ids: Iterable[SupportsIndex], skip_special_tokens: bool = False) -> str: ...
    def spelling(self, id: SupportsIndex) -> str | None: ...
    def id(self, token: str) -> int | None: ...
    def token_text(self, id: int) -> str: ...
    def token_bytes(self, id: int) -> bytes: ...
    def vocabulary_bytes(self) -> tuple[list[bytes], dict[int, bytes], dict[int, str], bool]: ...
    def special(self) -> list[tuple[str, str, int]]: ...
    def __len__(self) -> int: ...
    @property
    def longest_token(self) -> int: ...

class StopMatch:
    """Where a stop string was found, in characters of the output."""

    @property
    def string(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

class StopStrings:
    """A set of stop strings, none empty."""

    def __init__(self, strings: Sequence[str]) -> None: ...

class Detokenizer:
    """Turns the ids of one output into text; without a tokenizer, into none."""

    def __init__(
        self,
        tokenizer: TextTokenizer | None = None,
        skip_special_tokens: bool = True,
        shown: Sequence[str] = ...,
        after: Iterable[int] = ...,
    ) -> None: ...
    def push(self, token_id: int) -> str:
        """The text that this id settles."""
    def finish(self) -> str:
        """The text still held back, after the last id."""
    @property
    def holding(self) -> bool: ...
    @property
    def streams(self) -> bool:
        """False: finish() gives all text."""

class OutputText:
    """The text of one output, which stop strings end."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: StopStrings | None = None,
        *,
        min_tokens: int = 0,
        keeps_string: bool = False,
        cuts_tokens: bool = True,
    ) -> None: ...
    def push(self, token_id: int, has_text: bool = True) -> str:
        """The text that can go out now."""
    def finish(self) -> str:
        """What was held back, unless a stop string takes it."""
    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the output, or None."""
    @property
    def released(self) -> int:
        """How many of the first tokens are sure to be part of the output."""

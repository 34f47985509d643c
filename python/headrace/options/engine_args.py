"""The keyword arguments of `LLM`: names and defaults of FastDeploy's engine arguments."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from headrace.errors import UnsupportedError
from headrace.hub import checked_path
from headrace.options.arg_checks import (
    check_choice,
    check_gibibytes,
    check_int,
    check_share,
    warn_caller,
)
from headrace.options.argument_parser import P, add_engine_options
from headrace.options.media import (
    check_names,
    encoder_cache_bytes,
    local_media_path,
    media_domains,
    processor_cache_bytes,
    read_limits,
)
from headrace.options.quantization import (
    engine_kv_cache_dtype,
    engine_quantization,
    kv_cache_quant_type,
)
from headrace.options.sampling_params import MAX_SEED, as_int
from headrace.options.speculative import engine_speculative
from headrace.options.vllm_args import VLLM_NAMES, TakesVllmNames, check_known, vllm_types
from headrace.quoting import quoted
from headrace.short_repr import given_fields, short_repr

_INTS = (  # 10.0 is taken for 10, and numpy's integers for Python's
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_gpu_blocks_override",
    "kv_cache_bytes",
    "num_state_slots",
    "snapshot_interval",
    "num_threads",
    "tensor_parallel_size",
    "data_parallel_size",
    "seed",
    "max_logprobs",
    "max_loras",
    "max_lora_rank",
    "max_encoder_tokens",
    "max_encoder_cache",
)
GUIDED_DECODING_BACKENDS = ("auto", "guidance", "xgrammar", "off")
LOGPROBS_MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")


def _missing(what: str, *only: Any) -> dict[str, Any]:
    """Any value but the default and these would need something that isn't there."""
    return {"missing": what, "only": only}


def _no_effect(why: str, *only: Any) -> dict[str, Any]:
    """Any value but the default and these is accepted and ignored, with a warning."""
    return {"no_effect": why, "only": only}


_ONE_PROCESS = "Headrace runs in one process and opens no ports"
_AUTOMATIC = "the engine decides by itself what is recorded and overlapped"
_SERVING = "it is about serving, and this is offline inference"
_SPLIT = "prompts and outputs share one pool of KV blocks"
_DEVICE = re.compile(r"auto|cpu|cpu_numa|cuda(:[0-9]{1,4})?")
_CHUNKS = "every step is filled to max_num_batched_tokens from all prompts in turn"
_BALANCE = "the balancing of experts over devices"
_EARLY_STOP = "stopping early on repetition"
_ONE_DEVICE = "one process drives every device"
_HEADS = "heads that classify or reward"
_LIVE_WEIGHTS = "weights that change while the model runs"


@dataclass(slots=True, frozen=True)
class EngineArgs(metaclass=TakesVllmNames):
    """Checked when made: raises ValueError (UnsupportedError for what this version lacks). vLLM's
    names are taken, too (docs/migrating.md).

    Defaults are FastDeploy's, except where they would hold back offline batches on a CPU:
    max_model_len is the model's own, as far as memory allows (FastDeploy: 2048); max_num_seqs is
    64 (FastDeploy: 8); seed None draws a fresh seed for every request without one (FastDeploy: 0).

    model, revision, tokenizer, chat_template: LLM's own arguments, for the record.
    max_model_len: most tokens of prompt and output together, >= 16.
    max_num_seqs: sequences that run at once, 1 .. 4096; more wait.
    max_num_batched_tokens: tokens computed in one step; None lets the engine choose.
    block_size: tokens per KV block: 16, 32, 64, 128 or 256.
    num_gpu_blocks_override: number of KV blocks, of all groups of layers together
        (model_info.num_kv_groups); None: from kv_cache_bytes.
    kv_cache_bytes: memory for the KV cache; 0: from gpu_memory_utilization, at most what
        max_num_seqs sequences of max_model_len tokens can use.
    gpu_memory_utilization: share of the free memory the model may take, in (0, 1].
    enable_prefix_caching: keep the KV blocks of finished requests for later prompts.
    num_state_slots, snapshot_interval: of a model whose layers keep states (docs/reliability.md),
        slots for states of sequences and for snapshots, and the tokens between snapshots; 0: the
        engine chooses.
    swap_space: GiB of main memory for KV blocks that the prefix cache has to give up: a prompt that
        needs them has them copied back instead of computing them again. None or 0: off.
    dtype: "auto" (the checkpoint's), "float32", "bfloat16" or "float16".
    device: "cpu", "cpu_numa" (weights and threads shared out to the machine's NUMA nodes), "cuda"
        (the first GPU), "cuda:N", or "auto": the first GPU if this build has the CUDA plug-in, the
        GPU is usable and runs the model, and no packed file is given; else "cpu".
    tensor_parallel_size: devices that compute the model together, 1 .. 64: the first GPUs, or as
        many groups of CPU threads (docs/parallel.md). It must divide the attention heads.
    enable_expert_parallel: each of them has some of the experts, instead of a part of each.
    data_parallel_size: replicas of the model, each on devices of its own; a request goes to the
        one that is likely to finish it first. 1 .. 64, and no more than 64 devices in all.
    num_threads: CPU threads; 0: HEADRACE_NUM_THREADS, else the usable cores.
    seed: makes the draws of requests without a seed of their own repeatable: they take seeds from
        this one in order of submission.
    enable_logprob, max_logprobs, logprobs_mode: whether requests may ask for log-probabilities, of
        how many tokens (-1: of the whole vocabulary), and which: raw or processed (after
        penalties, temperature and bad words), logprobs or logits.
    guided_decoding_backend: "off" refuses guided decoding; all others mean llguidance (FastDeploy:
        "off"). guided_decoding_disable_any_whitespace: JSON without whitespace between its parts.
    load_choices: "dummy" fills the weights with random numbers, for benchmarks.
    packed_weights: a file made by `headrace pack` (headrace.packed) to load the weights from; one
        that doesn't fit the model's folder or this machine is an error. "auto": on the CPU, one
        that is written in the background at the first start and kept in a cache folder
        ($HEADRACE_CACHE, ~/.cache/headrace; docs/packed.md).
    packed_copy: copy the weights out of that file instead of mapping it.
    quantization: "wint8" or "wint4" rounds the weights to 8 or 4 bits at load, a vision tower's to
        8; on a GPU "fp8" rounds weights and activations to FP8, with a scale for each channel and
        row, "block_wise_fp8" with one for each 128 inputs. docs/models.md has the other names; None
        keeps them in `dtype`.
    kv_cache_dtype: what keys and values are kept in: "auto" (as the weights), "float32",
        "bfloat16", "float16", "int8", "fp8" or "uint4" (docs/models.md). kv_cache_quant_type: the
        same by FastDeploy's names: "int8" and "int8_zp" mean int8, "int4_zp" uint4,
        "float8_e4m3fn", "float8_e4m3fn_zp" and "block_wise_fp8" fp8.
    raise_on_error: raise EngineError for a failed request instead of reporting it in its output.
    enable_lora, max_loras, max_lora_rank: whether requests may name adapters, of which at most
        max_loras are loaded at once, none of a higher rank. Memory for them is set aside.
    reasoning_parser, tool_call_parser: what takes thinking and calls out of the text, by name, or
        "auto": by the chat template (docs/tools.md). None: nothing is taken out.
    tool_parser_plugin: a Python file to run first, which registers parsers of its own.
    limit_mm_per_prompt: {"image": 4, "video": 1}: the most items of a prompt; default: one of each.
    mm_processor_kwargs: how images and clips are made ready (docs/media.md has the names); a
        prompt's own come on top.
    allowed_local_media_path: the folder that file:// addresses may name files in; None: none, or
        HEADRACE_ALLOWED_LOCAL_MEDIA_PATH. allowed_media_domains: the hosts that http(s):// ones may
        name, as a list; None: none, or HEADRACE_ALLOWED_MEDIA_DOMAINS (docs/media.md).
    media_limits: {"max_pixels": 4_000_000}: headrace.media.MediaLimits, by the names of its fields.
    max_encoder_tokens: rows of images and clips encoded between two steps; 0: the engine chooses.
    max_encoder_cache: rows of encoded images and clips that are kept; -1: the engine chooses. An
        item must have room in it, all of it or, of a clip, a part.
    max_processor_cache: GiB of processed images and clips that are kept; -1: 0.25, 0: none.
    deploy_modality: "text" refuses images and clips. enable_mm: True refuses a model without them.
    speculative_config: {"method": "ngram", "num_speculative_tokens": 8}, for instance: guess tokens
        and compute several in one step; outputs are the same (docs/speculative.md).
    """

    model: str | os.PathLike[str] | None = None
    revision: str | None = "master"
    tokenizer: str | os.PathLike[str] | None = None
    chat_template: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    block_size: int = 64
    num_gpu_blocks_override: int | None = None
    kv_cache_bytes: int = 0
    gpu_memory_utilization: float = 0.9
    enable_prefix_caching: bool = True
    num_state_slots: int = 0
    snapshot_interval: int = 0
    swap_space: float | None = None
    dtype: str = "auto"
    device: str = "auto"
    tensor_parallel_size: int = 1
    enable_expert_parallel: bool = False
    data_parallel_size: int = 1
    num_threads: int = 0
    seed: int | None = None
    enable_logprob: bool = False
    max_logprobs: int = 20
    logprobs_mode: str = "raw_logprobs"
    load_choices: str = "default_v1"
    packed_weights: str | os.PathLike[str] | None = None
    packed_copy: bool = False
    quantization: Any = None
    kv_cache_dtype: str = "auto"
    kv_cache_quant_type: Any = None
    raise_on_error: bool = False
    logits_processors: list[Any] | None = None
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    speculative_config: Any = None
    limit_mm_per_prompt: Mapping[str, int] | None = None
    mm_processor_kwargs: Mapping[str, Any] | None = None
    allowed_local_media_path: str | os.PathLike[str] | None = None
    allowed_media_domains: Sequence[str] | None = None
    media_limits: Mapping[str, float] | None = None
    max_encoder_tokens: int = 0
    max_encoder_cache: int = -1
    max_processor_cache: float = -1
    deploy_modality: str = "mixed"
    enable_mm: bool = False

    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    tool_parser_plugin: str | os.PathLike[str] | None = None
    guided_decoding_backend: str = "auto"
    guided_decoding_disable_any_whitespace: bool = False
    enable_early_stop: bool = field(default=False, metadata=_missing(_EARLY_STOP))
    early_stop_config: Any = field(default=None, metadata=_missing(_EARLY_STOP))
    routing_replay_config: Any = field(default=None, metadata=_missing("replays of expert routing"))
    enable_keep_sampling_mask: bool = field(default=False, metadata=_missing("masks of sampling"))
    enable_entropy: bool = field(default=False, metadata=_missing("the output of entropies"))
    runner: str = field(default="auto", metadata=_missing("this runner", "generate", "pooling"))
    convert: str = field(default="auto", metadata=_missing(_HEADS, "none", "embed"))
    override_pooler_config: Any = field(default=None, metadata=_missing("pooling models"))
    model_impl: str = field(
        default="auto", metadata=_missing("other implementations of a model", "fastdeploy")
    )
    use_internode_ll_two_stage: bool = field(
        default=False, metadata=_missing("experts on several machines")
    )
    enable_eplb: bool = field(default=False, metadata=_missing(_BALANCE))
    eplb_config: Any = field(default=None, metadata=_missing(_BALANCE))
    task: str = field(
        default="generate", metadata=_missing(_HEADS, "auto", "embed", "embedding", "score")
    )
    model_config_name: str = field(
        default="config.json", metadata=_missing("configurations by other names")
    )
    tokenizer_base_url: str | None = field(default=None, metadata=_missing("remote tokenizers"))
    dynamic_load_weight: bool = field(default=False, metadata=_missing(_LIVE_WEIGHTS))
    rsync_config: Any = field(default=None, metadata=_missing(_LIVE_WEIGHTS))
    kvcache_storage_backend: str | None = field(
        default=None, metadata=_missing("storage of the KV cache elsewhere")
    )

    kv_cache_ratio: float = field(default=0.75, metadata=_no_effect(_SPLIT))
    static_decode_blocks: int = field(default=2, metadata=_no_effect(_SPLIT))
    prealloc_dec_block_slot_num_threshold: int = field(default=12, metadata=_no_effect(_SPLIT))
    enable_chunked_prefill: bool | None = field(
        default=None, metadata=_no_effect("it is always on", True)
    )
    max_num_partial_prefills: int = field(default=1, metadata=_no_effect(_CHUNKS))
    max_long_partial_prefills: int = field(default=1, metadata=_no_effect(_CHUNKS))
    long_prefill_token_threshold: int = field(default=0, metadata=_no_effect(_CHUNKS))
    enable_output_caching: bool | None = field(
        default=None,
        metadata=_no_effect("outputs are cached like prompts, with enable_prefix_caching", True),
    )
    use_warmup: int = field(default=0, metadata=_no_effect("the engine always warms up"))
    graph_optimization_config: Any = field(default=None, metadata=_no_effect(_AUTOMATIC))
    plas_attention_config: Any = field(
        default=None, metadata=_no_effect("attention is computed exactly")
    )
    disable_custom_all_reduce: bool = field(default=False, metadata=_no_effect(_ONE_DEVICE))
    enable_overlap_schedule: bool = field(default=True, metadata=_no_effect(_AUTOMATIC))
    lm_head_fp32: bool = field(
        default=False, metadata=_no_effect("logits are always computed in float32")
    )
    moe_gate_fp32: bool = field(
        default=False, metadata=_no_effect("routing is always computed in float32")
    )
    ips: Any = field(default=None, metadata=_no_effect(_ONE_PROCESS))
    port: Any = field(default=None, metadata=_no_effect(_ONE_PROCESS))
    metrics_port: Any = field(default=None, metadata=_no_effect(_ONE_PROCESS))
    engine_worker_queue_port: Any = field(default=None, metadata=_no_effect(_ONE_PROCESS))
    cache_queue_port: Any = field(default=None, metadata=_no_effect(_ONE_PROCESS))
    pd_comm_port: Any = field(default=None, metadata=_no_effect(_ONE_PROCESS))
    rdma_comm_ports: Any = field(default=None, metadata=_no_effect(_ONE_PROCESS))
    api_key: Any = field(default=None, metadata=_no_effect(_SERVING))
    served_model_name: str | None = field(default=None, metadata=_no_effect(_SERVING))
    splitwise_role: str = field(default="mixed", metadata=_no_effect(_SERVING))
    router: Any = field(default=None, metadata=_no_effect(_SERVING))
    scheduler_name: str = field(default="local", metadata=_no_effect(_SERVING))
    scheduler_config: Any = field(default=None, metadata=_no_effect(_SERVING))
    scheduler_max_size: int = field(default=-1, metadata=_no_effect(_SERVING))
    scheduler_ttl: int = field(default=900, metadata=_no_effect(_SERVING))
    scheduler_host: str = field(default="127.0.0.1", metadata=_no_effect(_SERVING))
    scheduler_port: int = field(default=6379, metadata=_no_effect(_SERVING))
    scheduler_db: int = field(default=0, metadata=_no_effect(_SERVING))
    scheduler_password: str | None = field(default=None, metadata=_no_effect(_SERVING))
    scheduler_topic: str = field(default="default", metadata=_no_effect(_SERVING))
    scheduler_min_load_score: float = field(default=3, metadata=_no_effect(_SERVING))
    scheduler_load_shards_num: int = field(default=1, metadata=_no_effect(_SERVING))
    scheduler_sync_period: int = field(default=5, metadata=_no_effect(_SERVING))
    scheduler_expire_period: int = field(default=3000, metadata=_no_effect(_SERVING))
    scheduler_release_load_expire_period: int = field(default=600, metadata=_no_effect(_SERVING))
    scheduler_reader_parallel: int = field(default=4, metadata=_no_effect(_SERVING))
    scheduler_writer_parallel: int = field(default=4, metadata=_no_effect(_SERVING))
    scheduler_reader_batch_size: int = field(default=200, metadata=_no_effect(_SERVING))
    scheduler_writer_batch_size: int = field(default=200, metadata=_no_effect(_SERVING))
    benchmark_metrics_config: Any = field(default=None, metadata=_no_effect(_SERVING))
    cache_transfer_protocol: str = field(default="ipc,rdma", metadata=_no_effect(_SERVING))
    write_policy: str = field(
        default="write_through", metadata=_no_effect("nothing is stored elsewhere")
    )
    load_strategy: str = field(
        default="normal", metadata=_no_effect("weights are read once, when the model is loaded")
    )
    local_data_parallel_id: int = field(default=0, metadata=_no_effect(_ONE_DEVICE))
    skip_port_check: bool = field(default=False, metadata=_no_effect(_ONE_PROCESS))
    shutdown_comm_group_if_worker_idle: bool | None = field(
        default=None, metadata=_no_effect(_ONE_PROCESS)
    )
    enable_flashinfer_allreduce_fusion: bool = field(
        default=False, metadata=_no_effect(_ONE_DEVICE)
    )
    disable_sequence_parallel_moe: bool = field(default=False, metadata=_no_effect(_ONE_DEVICE))
    ep_prefill_use_worst_num_tokens: bool = field(default=False, metadata=_no_effect(_ONE_DEVICE))
    enable_chunked_moe: bool = field(default=False, metadata=_no_effect(_CHUNKS))
    chunked_moe_size: int = field(default=256, metadata=_no_effect(_CHUNKS))
    enable_moe_scores_elementwise_fuse: bool = field(default=False, metadata=_no_effect(_AUTOMATIC))
    disable_chunked_mm_input: bool = field(
        default=False,
        metadata=_no_effect("outputs are the same, wherever a chunk ends within an image"),
    )

    def __post_init__(self) -> None:
        for name in _INTS:
            object.__setattr__(self, name, as_int(getattr(self, name)))
        for item in fields(self):
            self._apply_rule(item.name, item.default, item.metadata)
        self._check_sizes()
        self._check_choices()
        engine_quantization(self.quantization)
        engine_speculative(self.speculative_config)
        self._engine_kv_cache_dtype()

    def __repr__(self) -> str:
        """With the fields that don't have their default."""
        return short_repr(self, given_fields(self))

    def _engine_kv_cache_dtype(self) -> str:
        within, own = kv_cache_quant_type(self.quantization), self.kv_cache_quant_type
        if within is not None and own not in (None, within):
            raise ValueError(
                f"kv_cache_quant_type={quoted(own)} and {quoted(within)} within quantization: set "
                "one"
            )
        return engine_kv_cache_dtype(self.kv_cache_dtype, within if own is None else own)

    def _apply_rule(self, name: str, default: Any, rule: Mapping[str, Any]) -> None:
        value = getattr(self, name)
        if not rule or value is None or value == default or value in rule["only"]:
            return
        if "missing" in rule:
            raise UnsupportedError(
                f"{name}={quoted(value)}: this version of Headrace does not have {rule['missing']} "
                f"yet; leave {name} out"
            )
        warn_caller(f"{name}={quoted(value)} has no effect: {rule['no_effect']}")

    def _check_sizes(self) -> None:
        check_int("max_model_len", self.max_model_len, 16, optional=True)
        check_int("max_num_seqs", self.max_num_seqs, 1, 4096)
        check_int("max_num_batched_tokens", self.max_num_batched_tokens, 1, optional=True)
        check_int("num_gpu_blocks_override", self.num_gpu_blocks_override, 1, optional=True)
        check_int("kv_cache_bytes", self.kv_cache_bytes, 0, 2**63 - 1)
        check_int("num_state_slots", self.num_state_slots, 0)
        check_int("snapshot_interval", self.snapshot_interval, 0, 2**24)
        check_int("num_threads", self.num_threads, 0, 1024)
        check_int("tensor_parallel_size", self.tensor_parallel_size, 1, 64)
        check_int("data_parallel_size", self.data_parallel_size, 1, 64)
        check_int("max_loras", self.max_loras, 1, 256)
        check_int("max_lora_rank", self.max_lora_rank, 1, 4096)
        check_int("max_encoder_tokens", self.max_encoder_tokens, 0)
        check_int("max_encoder_cache", self.max_encoder_cache, -1)
        if self.max_encoder_cache == 0:
            raise UnsupportedError(
                "max_encoder_cache=0: the engine keeps at least the item that it works on; say how "
                "many rows that may have, or -1"
            )
        check_int("seed", self.seed, 0, MAX_SEED, optional=True)
        if isinstance(self.max_logprobs, int) and self.max_logprobs < -1:
            raise ValueError(f"max_logprobs ({self.max_logprobs}) can't be less than -1.")
        check_int("max_logprobs", self.max_logprobs, -1)
        check_choice("block_size", self.block_size, (16, 32, 64, 128, 256))
        check_share("gpu_memory_utilization", self.gpu_memory_utilization)
        check_share("kv_cache_ratio", self.kv_cache_ratio)
        check_gibibytes("swap_space", self.swap_space)

    def _check_choices(self) -> None:
        if not isinstance(self.packed_weights, (str, os.PathLike, type(None))):
            raise TypeError(f"packed_weights must be a path, got {quoted(self.packed_weights)}")
        if self.packed_weights is not None:
            checked_path(self.packed_weights, "packed_weights")
        for name in (
            "enable_prefix_caching",
            "enable_logprob",
            "raise_on_error",
            "packed_copy",
            "enable_lora",
            "enable_expert_parallel",
            "enable_mm",
            "guided_decoding_disable_any_whitespace",
        ):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be a bool, got {quoted(getattr(self, name))}")
        check_choice("dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        if not isinstance(self.device, str) or not _DEVICE.fullmatch(self.device):
            raise ValueError(
                "device must be one of 'auto', 'cpu', 'cpu_numa', 'cuda' and 'cuda:N' (N is a "
                f"GPU's number), got {quoted(self.device)}"
            )
        check_choice("logprobs_mode", self.logprobs_mode, LOGPROBS_MODES)
        check_choice(
            "guided_decoding_backend", self.guided_decoding_backend, GUIDED_DECODING_BACKENDS
        )
        check_choice("deploy_modality", self.deploy_modality, ("mixed", "text"))
        read_limits(self.limit_mm_per_prompt)
        check_names("mm_processor_kwargs", self.mm_processor_kwargs)
        check_names("media_limits", self.media_limits)
        local_media_path(self.allowed_local_media_path)
        media_domains(self.allowed_media_domains)
        processor_cache_bytes(self.max_processor_cache)
        check_choice("load_choices", self.load_choices, ("default_v1", "default", "dummy"))
        for processor in self.logits_processors or ():
            name = processor.rpartition(":")[2] if isinstance(processor, str) else repr(processor)
            if name != "LogitBiasLogitsProcessor":
                raise UnsupportedError(
                    f"logits_processors: {name} is not available; this version of Headrace has "
                    "LogitBiasLogitsProcessor, which is always on"
                )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> EngineArgs:
        """Also from vLLM's names. Raises TypeError for an unknown name, with the nearest known
        one."""
        check_known("LLM", kwargs, (item.name for item in fields(cls)))
        return cls(**kwargs)

    @classmethod
    def add_cli_args(cls, parser: P) -> P:
        """`parser` with an option for each keyword of LLM: LLM(**vars(parser.parse_args()))."""
        return add_engine_options(parser, cls, vllm_types())

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> EngineArgs:
        """Of what such a parser has read; a script's own options are left out."""
        names = [*(item.name for item in fields(cls)), *VLLM_NAMES]
        return cls.from_kwargs({n: getattr(args, n) for n in names if hasattr(args, n)})

    def model_options(self, path: str) -> dict[str, Any]:
        """The engine's options for the model folder at `path`; those of `speculative` as a dict."""
        quantization, group_size = engine_quantization(self.quantization)
        return {
            "path": path,
            "device": self.device,
            "tensor_parallel_size": self.tensor_parallel_size,
            "enable_expert_parallel": self.enable_expert_parallel,
            "data_parallel_size": self.data_parallel_size,
            "dtype": self.dtype,
            "quantization": quantization,
            "quantization_group_size": group_size,
            "kv_cache_dtype": self._engine_kv_cache_dtype(),
            "num_threads": self.num_threads,
            "max_model_len": self.max_model_len or 0,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens or 0,
            "block_size": self.block_size,
            "num_kv_blocks": self.num_gpu_blocks_override or 0,
            "kv_cache_bytes": self.kv_cache_bytes,
            "memory_utilization": self.gpu_memory_utilization,
            "enable_prefix_caching": self.enable_prefix_caching,
            "num_state_slots": self.num_state_slots,
            "snapshot_interval": self.snapshot_interval,
            "swap_space": float(self.swap_space or 0),
            "packed_weights": os.fspath(self.packed_weights or ""),
            "packed_copy": self.packed_copy,
            "max_loras": self.max_loras if self.enable_lora else 0,
            "max_lora_rank": self.max_lora_rank,
            "speculative": engine_speculative(self.speculative_config),
            "max_encoder_tokens": self.max_encoder_tokens,
            "encoder_cache_bytes": encoder_cache_bytes(self.max_encoder_cache, path),
            "dummy_weights": self.load_choices == "dummy",
        }

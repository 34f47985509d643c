"""Every engine argument: accepted, refused or warned about."""

from __future__ import annotations

import json
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UnsupportedError
from headrace.options.engine_args import EngineArgs

OPTIONS = [
    ("max_model_len", 128, "max_model_len", 128),
    ("max_num_seqs", 4, "max_num_seqs", 4),
    ("max_num_batched_tokens", 256, "max_num_batched_tokens", 256),
    ("block_size", 32, "block_size", 32),
    ("num_gpu_blocks_override", 77, "num_kv_blocks", 77),
    ("kv_cache_bytes", 1 << 40, "kv_cache_bytes", 1 << 40),
    ("gpu_memory_utilization", 0.5, "memory_utilization", 0.5),
    ("enable_prefix_caching", False, "enable_prefix_caching", False),
    ("num_state_slots", 70, "num_state_slots", 70),
    ("snapshot_interval", 512, "snapshot_interval", 512),
    ("swap_space", 4, "swap_space", 4.0),
    ("dtype", "float32", "dtype", "float32"),
    ("device", "cpu", "device", "cpu"),
    ("device", "cpu_numa", "device", "cpu_numa"),
    ("device", "cuda:1", "device", "cuda:1"),
    ("num_threads", 3, "num_threads", 3),
    ("tensor_parallel_size", 2, "tensor_parallel_size", 2),
    ("enable_expert_parallel", True, "enable_expert_parallel", True),
    ("data_parallel_size", 2, "data_parallel_size", 2),
    ("packed_weights", "m.headrace", "packed_weights", "m.headrace"),
    ("packed_weights", Path("m.headrace"), "packed_weights", "m.headrace"),
    ("packed_copy", True, "packed_copy", True),
    ("max_encoder_tokens", 512, "max_encoder_tokens", 512),
    ("load_choices", "dummy", "dummy_weights", True),
    ("quantization", "wint4", "quantization", "wint4"),
    ("speculative_config", {"method": "ngram"}, "speculative", {"method": "ngram"}),
    ("kv_cache_dtype", "uint4", "kv_cache_dtype", "uint4"),
    ("kv_cache_dtype", "fp8", "kv_cache_dtype", "fp8"),
    ("kv_cache_quant_type", "int8", "kv_cache_dtype", "int8"),
    ("kv_cache_quant_type", "float8_e4m3fn", "kv_cache_dtype", "fp8"),
    ("kv_cache_quant_type", "float8_e4m3fn_zp", "kv_cache_dtype", "fp8"),
    ("kv_cache_quant_type", "block_wise_fp8", "kv_cache_dtype", "fp8"),
    ("kv_cache_quant_type", "int4_zp", "kv_cache_dtype", "uint4"),
    (
        "quantization",
        {"quantization": "kvcache", "kv_cache_quant_type": "int8"},
        "kv_cache_dtype",
        "int8",
    ),
    (
        "quantization",
        '{"quantization": "mix_quant", "kv_cache_quant_type": "int4_zp"}',
        "kv_cache_dtype",
        "uint4",
    ),
    (
        "quantization",
        {
            "quantization": "mix_quant",
            "dense_quant_type": "wint8",
            "kv_cache_quant_type": "int4_zp",
        },
        "quantization",
        "wint8",
    ),
]
HERE_ONLY = {
    "model": "folder",
    "revision": "main",
    "tokenizer": "other",
    "chat_template": "{{ messages }}",
    "enable_lora": True,
    "max_loras": 2,
    "max_lora_rank": 8,
    "seed": 5,
    "enable_logprob": True,
    "max_logprobs": -1,
    "raise_on_error": True,
}
MORE = {
    "logprobs_mode": "processed_logits",
    "logits_processors": ["LogitBiasLogitsProcessor"],
    "guided_decoding_backend": "xgrammar",
    "guided_decoding_disable_any_whitespace": True,
    "reasoning_parser": "ernie-45-vl",
    "tool_call_parser": "ernie-x1",
    "tool_parser_plugin": "plugin.py",
}
# What LLM does with them: media/test_media_llm.py.
OF_MEDIA: dict[str, Any] = {
    "limit_mm_per_prompt": {"image": 4},
    "mm_processor_kwargs": {"fps": 1},
    "media_limits": {"max_pixels": 5},
    "allowed_local_media_path": "folder",
    "allowed_media_domains": ["example.com"],
    "max_processor_cache": 0.5,
    "max_encoder_cache": 5,
    "deploy_modality": "text",
    "enable_mm": True,
}

NO_EFFECT: dict[str, Any] = {
    "kv_cache_ratio": 0.5,
    "static_decode_blocks": 3,
    "prealloc_dec_block_slot_num_threshold": 5,
    "enable_chunked_prefill": False,
    "max_num_partial_prefills": 2,
    "max_long_partial_prefills": 2,
    "long_prefill_token_threshold": 100,
    "enable_output_caching": False,
    "use_warmup": 1,
    "graph_optimization_config": {"use_cudagraph": True},
    "plas_attention_config": {"x": 1},
    "disable_custom_all_reduce": True,
    "enable_overlap_schedule": False,
    "lm_head_fp32": True,
    "moe_gate_fp32": True,
    "ips": "10.0.0.1",
    "port": 8000,
    "metrics_port": 8001,
    "engine_worker_queue_port": 8002,
    "cache_queue_port": 8003,
    "pd_comm_port": 8004,
    "rdma_comm_ports": [1],
    "api_key": "k",
    "served_model_name": "m",
    "splitwise_role": "prefill",
    "router": "r",
    "scheduler_name": "global",
    "scheduler_config": {},
    "scheduler_max_size": 5,
    "scheduler_ttl": 5,
    "scheduler_host": "host",
    "scheduler_port": 5,
    "scheduler_db": 5,
    "scheduler_password": "p",
    "scheduler_topic": "t",
    "scheduler_min_load_score": 2.5,
    "scheduler_load_shards_num": 5,
    "scheduler_sync_period": 6,
    "scheduler_expire_period": 5,
    "scheduler_release_load_expire_period": 5,
    "scheduler_reader_parallel": 5,
    "scheduler_writer_parallel": 5,
    "scheduler_reader_batch_size": 5,
    "scheduler_writer_batch_size": 5,
    "benchmark_metrics_config": {},
    "cache_transfer_protocol": "ipc",
    "write_policy": "write_back",
    "load_strategy": "ipc",
    "local_data_parallel_id": 1,
    "skip_port_check": True,
    "shutdown_comm_group_if_worker_idle": True,
    "enable_flashinfer_allreduce_fusion": True,
    "disable_sequence_parallel_moe": True,
    "ep_prefill_use_worst_num_tokens": True,
    "enable_chunked_moe": True,
    "chunked_moe_size": 5,
    "enable_moe_scores_elementwise_fuse": True,
    "disable_chunked_mm_input": True,
}
UNSUPPORTED: dict[str, Any] = {
    "enable_early_stop": True,
    "early_stop_config": {"window_size": 9},
    "routing_replay_config": {"x": 1},
    "enable_keep_sampling_mask": True,
    "enable_entropy": True,
    "runner": "draft",
    "convert": "classify",
    "override_pooler_config": {"x": 1},
    "model_impl": "paddleformers",
    "use_internode_ll_two_stage": True,
    "enable_eplb": True,
    "eplb_config": {},
    "task": "classify",
    "model_config_name": "other.json",
    "tokenizer_base_url": "http://host",
    "dynamic_load_weight": True,
    "rsync_config": {},
    "kvcache_storage_backend": "mooncake",
}
SILENT: dict[str, Any] = {
    "tensor_parallel_size": 1,
    "data_parallel_size": 1,
    "enable_chunked_prefill": True,
    "enable_output_caching": True,
    "kv_cache_ratio": 0.75,
    "deploy_modality": "text",
    "runner": "generate",
    "convert": "none",
    "model_impl": "fastdeploy",
    "quantization": None,
    "enable_mm": False,
    "load_choices": "default",
}


def args(**values: Any) -> EngineArgs:
    return EngineArgs.from_kwargs(values)


def test_every_argument_is_in_a_table() -> None:
    tables = [HERE_ONLY, MORE, OF_MEDIA, NO_EFFECT, UNSUPPORTED, {name for name, *_ in OPTIONS}]
    assert {field.name for field in fields(EngineArgs)} == set().union(*tables)


@pytest.mark.parametrize(("name", "value", "option", "expected"), OPTIONS)
def test_reaches_the_engine(name: str, value: Any, option: str, expected: Any) -> None:
    options = args(**{name: value}).model_options("folder")
    assert options[option] == expected
    assert args().model_options("folder")[option] != expected


def test_adapters_take_memory_only_when_enabled() -> None:
    assert args(max_loras=3).model_options("folder")["max_loras"] == 0
    options = args(enable_lora=True, max_loras=3, max_lora_rank=8).model_options("folder")
    assert (options["max_loras"], options["max_lora_rank"]) == (3, 8)


QUANTIZATIONS: list[tuple[Any, str, int]] = [
    (None, "", 0),
    ("wint8", "wint8", 0),
    ("a8w8", "wint8", 0),
    ("w4a8", "wint4", 0),
    ("fp8", "fp8", 0),
    ("wfp8afp8", "fp8", 0),
    ("block_wise_fp8", "block_wise_fp8", 0),
    ({"quantization": "wint4", "group_size": 64}, "wint4", 64),
    ('{"quantization": "mix_quant", "dense_quant_type": "wint8"}', "wint8", 0),
]


@pytest.mark.parametrize(("value", "name", "size"), QUANTIZATIONS)
def test_quantization(value: Any, name: str, size: int) -> None:
    options = args(quantization=value).model_options("folder")
    assert (options["quantization"], options["quantization_group_size"]) == (name, size)


BAD_QUANTIZATIONS: list[tuple[Any, type[Exception], str]] = [
    ("wint2", UnsupportedError, "wint2"),
    ("", UnsupportedError, "this version of Headrace has wint8"),
    (8, TypeError, "int"),
    ("{", ValueError, "JSON"),
    ({"quantization": "wint4", "group_size": 48}, ValueError, "48"),
    ({"quantization": "wint4", "group_size": True}, ValueError, "True"),
    ({"quantization": "mix_quant", "moe_quant_type": "wint4"}, UnsupportedError, "moe_quant_type"),
]


@pytest.mark.parametrize(("value", "error", "message"), BAD_QUANTIZATIONS)
def test_bad_quantization(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        args(quantization=value)


def test_the_encoder_cache_is_told_in_rows(tmp_path: Path) -> None:
    vision: dict[str, Any] = {"deepstack_visual_indexes": [5, 11]}
    config = {"text_config": {"hidden_size": 64}, "vision_config": vision}
    (tmp_path / "config.json").write_text(json.dumps(config))

    def told(rows: int) -> Any:
        return args(max_encoder_cache=rows).model_options(str(tmp_path))["encoder_cache_bytes"]

    assert (told(-1), told(10)) == (0, 10 * 64 * 3 * 4)
    with pytest.raises(UnsupportedError, match="max_encoder_cache=0: the engine keeps at least"):
        told(0)


def test_defaults_leave_the_choice_to_the_engine() -> None:
    options = args().model_options("folder")
    assert options["path"] == "folder"
    assert options["max_num_seqs"] == 64
    zeros = ("max_model_len", "max_num_batched_tokens", "num_kv_blocks", "num_threads")
    assert all(options[name] == 0 for name in zeros)


@pytest.mark.parametrize(("name", "value"), [*HERE_ONLY.items(), *MORE.items(), *OF_MEDIA.items()])
def test_kept(name: str, value: Any) -> None:
    assert getattr(args(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), NO_EFFECT.items())
def test_one_warning(name: str, value: Any) -> None:
    with pytest.warns(UserWarning, match="has no effect") as caught:
        args(**{name: value})
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"{name}={value!r} has no effect: ")


def test_whole_numbers_of_other_types() -> None:
    own = args(max_model_len=128.0, max_num_seqs=4.0)
    assert (own.max_model_len, own.max_num_seqs) == (128, 4)
    assert type(own.max_model_len) is int


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED.items())
def test_unsupported(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        args(**{name: value})
    assert str(caught.value).startswith(f"{name}={value!r}: ")


@pytest.mark.parametrize(("name", "value"), SILENT.items())
def test_silent(name: str, value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        args(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_model_len", 15, r"max_model_len must be in \[16, \d+\], got 15"),
        ("max_num_seqs", 0, r"max_num_seqs must be in \[1, 4096\], got 0"),
        ("max_num_seqs", 4097, r"max_num_seqs must be in \[1, 4096\], got 4097"),
        ("max_num_batched_tokens", 0, r"max_num_batched_tokens must be in \[1, \d+\], got 0"),
        ("num_gpu_blocks_override", 0, r"num_gpu_blocks_override must be in \[1, \d+\], got 0"),
        ("kv_cache_bytes", -1, "kv_cache_bytes must be in .*, got -1"),
        ("num_threads", -1, "num_threads must be in .*, got -1"),
        ("max_model_len", 2**31, rf"max_model_len must be in \[16, \d+\], got {2**31}"),
        ("seed", -1, "seed must be in .*, got -1"),
        ("max_logprobs", -2, r"max_logprobs \(-2\) can't be less than -1."),
        ("block_size", 48, "block_size must be one of 16, 32, 64, 128, 256, got 48"),
        ("swap_space", -1, r"swap_space must be in \[0, \d+\] GiB \(0: off\), got -1"),
        ("swap_space", float("nan"), "swap_space must be in .*, got nan"),
        ("swap_space", float("inf"), "swap_space must be in .*, got inf"),
        ("gpu_memory_utilization", 0, r"gpu_memory_utilization must be in \(0, 1\], got 0"),
        ("gpu_memory_utilization", 1.5, r"gpu_memory_utilization must be in \(0, 1\], got 1.5"),
        ("dtype", "int8", "dtype must be one of .*, got 'int8'"),
        ("device", "gpu", "device must be one of .*, got 'gpu'"),
        ("device", "cuda:x", "device must be one of .*, got 'cuda:x'"),
        ("device", 0, "device must be one of .*, got 0"),
        ("logprobs_mode", "raw", "logprobs_mode must be one of .*, got 'raw'"),
        ("load_choices", "x", "load_choices must be one of .*, got 'x'"),
        ("max_encoder_tokens", -1, "max_encoder_tokens must be in .*, got -1"),
        ("max_processor_cache", -2, r"max_processor_cache must be in \[0, \d+\] GiB"),
        ("max_processor_cache", float("nan"), "max_processor_cache must be in .*, got nan"),
        ("deploy_modality", "vision", "deploy_modality must be one of 'mixed', 'text'"),
        ("limit_mm_per_prompt", {"image": -1}, r"limit_mm_per_prompt\['image'\] must be an int"),
        ("limit_mm_per_prompt", {"sound": 1}, "limit_mm_per_prompt has no 'sound'"),
        ("logits_processors", ["Mine"], "logits_processors: Mine is not available"),
    ],
)
def test_out_of_range(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        args(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model_len", "128"),
        ("max_num_seqs", None),
        ("max_num_seqs", True),
        ("gpu_memory_utilization", "0.5"),
        ("enable_prefix_caching", 1),
        ("swap_space", "4"),
        ("swap_space", True),
        ("max_logprobs", 2.5),
        ("max_encoder_tokens", "5"),
        ("max_encoder_cache", 1.5),
        ("max_processor_cache", "1"),
        ("enable_mm", 1),
        ("limit_mm_per_prompt", 4),
        ("mm_processor_kwargs", "fps"),
        ("allowed_local_media_path", 5),
        ("allowed_media_domains", "example.com"),
    ],
)
def test_wrong_type(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a"):
        args(**{name: value})


@pytest.mark.parametrize(
    ("name", "near"),
    [("max_model_length", "max_model_len"), ("tensor_parallel", "tensor_parallel_size")],
)
def test_unknown_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'.*'{near}'"):
        args(**{name: 1})


def test_unknown_without_a_near_one() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzzzzzzz'$"):
        args(zzzzzzzz=1)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"kv_cache_dtype": "int4"}, ValueError, "'int4'"),
        ({"kv_cache_dtype": None}, ValueError, "kv_cache_dtype"),
        ({"kv_cache_quant_type": "float8_e5m2"}, UnsupportedError, "float8_e5m2"),
        ({"kv_cache_quant_type": 8}, UnsupportedError, "kv_cache_quant_type"),
        ({"kv_cache_dtype": "uint4", "kv_cache_quant_type": "int8"}, ValueError, "set one"),
        ({"quantization": {"quantization": "kvcache"}}, UnsupportedError, "'kvcache'"),
        (
            {
                "quantization": {"quantization": "kvcache", "kv_cache_quant_type": "int8"},
                "kv_cache_quant_type": "int4_zp",
            },
            ValueError,
            "'int4_zp' and 'int8' within quantization: set one",
        ),
    ],
)
def test_bad_kv_cache_dtype(values: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        args(**values)

"""headrace/c.h in ctypes, as a program in another language would write it."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

FOREVER = -1


class TokenLists(ctypes.Structure):
    _fields_ = (("ids", POINTER(c_int32)), ("lengths", POINTER(c_size_t)), ("count", c_size_t))


class ModelOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        *(
            (name, c_char_p)
            for name in ("path", "device", "dtype", "kv_cache_dtype", "cpu_isa", "packed")
        ),
        ("kv_cache_bytes", c_size_t),
        ("memory_leftover_bytes", c_size_t),
        ("memory_utilization", c_double),
        ("total_memory_ratio", c_double),
        *(
            (name, c_int32)
            for name in (
                "num_threads",
                "max_model_len",
                "max_num_seqs",
                "max_num_batched_tokens",
                "block_size",
                "num_kv_blocks",
                "max_prefill_chunk",
                "enable_prefix_caching",
                "dummy_weights",
                "out_of_blocks",
                "packed_copy",
                "max_loras",
                "max_lora_rank",
                "reserved",
            )
        ),
    )


class SamplingParams(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("seed", ctypes.c_uint64),
        ("logit_bias_ids", POINTER(c_int32)),
        ("logit_bias_values", POINTER(c_float)),
        ("num_logit_bias", c_size_t),
        ("bad_words", TokenLists),
        ("stop_token_ids", POINTER(c_int32)),
        ("num_stop_token_ids", c_size_t),
        ("stop_sequences", TokenLists),
        ("has_seed", c_int32),
        ("temperature", c_float),
        ("top_p", c_float),
        ("top_k", c_int32),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("frequency_penalty", c_float),
        ("presence_penalty", c_float),
        ("max_tokens", c_int32),
        ("min_tokens", c_int32),
        ("ignore_eos", c_int32),
        ("logprobs", c_int32),
        ("prompt_logprobs", c_int32),
        # What follows is left to the library: an older program's struct.
    )


class RequestOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("request_id", c_char_p),
        ("prompt_token_ids", POINTER(c_int32)),
        ("num_prompt_token_ids", c_size_t),
        ("sampling", POINTER(SamplingParams)),
        ("constraint", c_void_p),
        ("lora_name", c_char_p),
    )


class LoraInfo(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("path", c_char_p),
        ("bytes", c_size_t),
        ("rank", c_int32),
    )


class LoraInfos(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("count", c_size_t),
        ("infos", POINTER(POINTER(LoraInfo))),
    )


class Output(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("token_ids", POINTER(c_int32)),
        ("num_token_ids", c_size_t),
        ("logprobs", c_void_p),
        ("num_logprobs", c_size_t),
        ("prompt_logprobs", c_void_p),
        ("num_prompt_logprobs", c_size_t),
        ("error_message", c_char_p),
        ("error_code", c_int32),
        ("finished", c_int32),
        ("finish_reason", c_int32),
        ("stop_token", c_int32),
    )


class Text(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("data", c_char_p), ("length", c_size_t))


class ChatOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("tools_json", c_char_p),
        ("chat_template", c_char_p),
    )


class CApi:
    """The library's functions, with their types."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        handle = c_void_p
        for name, result, arguments in (
            ("version", c_char_p, ()),
            ("last_error_code", c_int32, ()),
            ("last_error_message", c_char_p, ()),
            ("model_options_init", None, (POINTER(ModelOptions), c_size_t)),
            ("sampling_params_init", None, (POINTER(SamplingParams), c_size_t)),
            ("request_options_init", None, (POINTER(RequestOptions), c_size_t)),
            ("engine_create", c_int32, (c_void_p, POINTER(handle))),
            ("engine_destroy", None, (handle,)),
            ("engine_install_model", c_int32, (handle, c_char_p, POINTER(ModelOptions))),
            ("engine_start_model", c_int32, (handle, c_char_p)),
            ("engine_load_lora", c_int32, (handle, c_char_p, c_char_p, c_char_p)),
            ("engine_unload_lora", c_int32, (handle, c_char_p, c_char_p)),
            ("engine_loras", c_int32, (handle, c_char_p, POINTER(POINTER(LoraInfos)))),
            ("lora_infos_release", None, (POINTER(LoraInfos),)),
            ("engine_submit", c_int32, (handle, c_char_p, POINTER(RequestOptions), c_void_p)),
            ("request_get", c_int32, (handle, c_int64, POINTER(POINTER(Output)))),
            ("request_cancel", c_int32, (handle,)),
            ("request_release", None, (handle,)),
            ("output_release", None, (POINTER(Output),)),
            ("chat_templates_load", c_int32, (c_char_p, POINTER(handle))),
            ("chat_templates_release", None, (handle,)),
            (
                "chat_render",
                c_int32,
                (handle, c_char_p, POINTER(ChatOptions), POINTER(POINTER(Text))),
            ),
            ("text_release", None, (POINTER(Text),)),
        ):
            function = self._library[f"headrace_{name}"]
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"declare headrace_{name} first")

    def check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"{code}: {self.last_error_message().decode()}")

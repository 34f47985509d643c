"""DashInfer 2.0/2.1's allspark API as data, to compare with its documentation line by line.

Signatures are as inspect prints them without annotations. Where Headrace differs on purpose, the
entry says so.
"""

from __future__ import annotations

# module -> names that can be imported from it
IMPORTS = {
    "": [
        "AsCacheMode",
        "AsEngine",
        "AsEngineStat",
        "AsEvictionStrategy",
        "AsFileInfo",
        "AsMHAPrefill",
        "AsModelConfig",
        "AsModelRuntimeConfigBuilder",
        "AsSchedulingStrategy",
        "AsStatus",
        "Engine",
        "GPTQSettings",
        "GenerateRequestStatus",
        "GeneratedElements",
        "HuggingFaceModel",
        "IQSettings",
        "ModelSerializerException",
        "MultiMediaInfo",
        "QUANT_CONFIG_MAP",
        "QuantizationSettings",
        "ResultQueue",
        "VocabType",
        "get_quant_settings_cls",
        "save_allsparky_dltensor_tofile",
        "set_global_header",
    ],
    ".engine": [
        "Engine",
        "TargetDevice",
        "RoPEScaleMethod",
        "RequestStatInfo",
        "ASGenerationConfigBuilder",
        "LLM",
        "AsStatus",
        "AsEngine",
        "AsEngineStat",
        "AsModelConfig",
        "AsCacheMode",
        "EngineUtils",
        "os",
        "Enum",
    ],
    "._allspark": ["AsStatus", "GenerateRequestStatus", "AsCacheMode"],
    ".model_loader": [
        "HuggingFaceModel",
        "DashInferModel",
        "LLM",
        "LoadFormat",
        "ConfigFieldMissingError",
        "ModelSerializerException",
    ],
    ".runtime_config": ["AsModelRuntimeConfigBuilder", "get_cache_mode_from_str"],
    ".generation_config": [
        "ASGenerationConfigBuilder",
        "GenerationConfigAdapter",
        "as_rand_max_int",
    ],
    ".prompt_utils": ["PromptTemplate"],
    ".quantization": ["QuantizeConfig", "KVCacheConfig"],
    ".quant.quantization_config": ["QuantizationSettings"],
    ".quant.quantization_config_gptq": ["GPTQSettings"],
    ".quant.quantization_config_iq": ["IQSettings"],
    ".config.diconfig": ["DIConfigBuilder"],
}

# What `from dashinfer.allspark import *` gives in the original.
STAR = [
    "AsStatus",
    "AsModelConfig",
    "Engine",
    "GenerateRequestStatus",
    "MultiMediaInfo",
    "HuggingFaceModel",
    "save_allsparky_dltensor_tofile",
    "set_global_header",
]
# What the page uses after both of its star imports, though the original's NameError there.
STAR_ON_THE_PAGE = [
    "AsModelRuntimeConfigBuilder",
    "TargetDevice",
    "AsCacheMode",
    "ASGenerationConfigBuilder",
    "GenerateRequestStatus",
]

ENUMS = {
    "AsStatus": {
        "ALLSPARK_SUCCESS": 0,
        "ALLSPARK_UNKNOWN_ERROR": 1,
        "ALLSPARK_PARAM_ERROR": 2,
        "ALLSPARK_IO_ERROR": 3,
        "ALLSPARK_MEMORY_ERROR": 4,
        "ALLSPARK_RUNTIME_ERROR": 5,
        "ALLSPARK_EXCEED_LIMIT_ERROR": 7,
        "ALLSPARK_ALLSPARK_INVALID_CALL_ERROR": 8,
        "ALLSPARK_INVALID_CALL_ERROR": 8,
        "ALLSPARK_EMPTY_REQUEST": 9,
        "ALLSPARK_ILLEGAL_REQUEST_ID": 10,
        "ALLSPARK_CACHE_MEMORY_OUT": 11,
        "ALLSPARK_REQUEST_DENIED": 12,
        "ALLSPARK_CHUNK_PREFILL": 14,
        "ALLSPARK_DEPRECATED": 20,
        "ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR": 21,
        "ALLSPARK_LORA_RANK_EXCEED_LIMIT_ERROR": 22,
        "ALLSPARK_LORA_NOT_FOUND": 23,
        "ALLSPARK_LORA_ALREADY_LOADED": 24,
        "ALLSPARK_LORA_IN_USE": 25,
        "ALLSPARK_STREAMING": 200,
    },
    "GenerateRequestStatus": {
        "Init": 0,
        "ContextFinished": 1,
        "Generating": 2,
        "GenerateFinished": 3,
        "GenerateInterrupted": 4,
        "InternalError": 5,
    },
    "AsCacheMode": {"AsCacheDefault": 0, "AsCacheQuantI8": 1, "AsCacheQuantU4": 2},
    "AsMHAPrefill": {"AsPrefillDefault": 0, "AsPrefillFlashV2": 10, "AsPrefillXformer": 11},
    "AsEvictionStrategy": {"MaxLength": 0, "Random": 1},
    "AsSchedulingStrategy": {"ContextPriority": 0, "Balance": 1},
    "VocabType": {
        "VOCAB_TYPE_WPM": 0,
        "VOCAB_TYPE_SPM": 1,
        "VOCAB_TYPE_UGM": 2,
        "VOCAB_TYPE_BPE": 3,
    },
    "TargetDevice": {"CUDA": ("CUDA",), "CPU": ("CPU",), "CPU_NUMA": "CPU_NUMA"},
    "RoPEScaleMethod": {"NO_SCALE": 0, "YaRN": 3, "NTK": 4},
}

# class -> method -> signature
SIGNATURES = {
    "Engine": {
        "__init__": "(self)",
        "install_model": "(self, as_model_config_struct)",
        "build_model_from_config_struct": "(self, as_model_config_struct)",
        "start_model": "(self, model_name)",
        "stop_model": "(self, model_name)",
        "release_model": "(self, model_name)",
        "start_request": "(self, model_name, inputs, generate_config={})",
        "start_request_ids": "(self, model_name, model, input_ids, generate_config_builder)",
        "start_request_text": (
            "(self, model_name, model, input_str_or_array, generate_config_builder)"
        ),
        "stop_request": "(self, model_name, request_handle)",
        "release_request": "(self, model_name, request_handle)",
        "sync_request": "(self, model_name, request_handle)",
        "get_no_wait": "(self, model_name, result_queue)",
        "get_wait": "(self, model_name, result_queue)",
        "get_request_status": "(self, model_name, result_queue)",
        "load_lora": "(self, model_name, lora_name)",
        "unload_lora": "(self, model_name, lora_name)",
        "get_as_engine_stat": "(self, model_name)",
        "get_model_info": "(self, model_name)",
        "get_op_profiling_info": "(self, model_name)",
        "get_file_information": "(self, as_graph_path, as_param_path)",
        "get_version_full": "(self)",
        "get_rank_id": "(self)",
        "is_allspark_work_as_service": "(self)",
        "unload_device_mem": "(self, model_name)",
        "load_device_mem": "(self, model_name)",
        "serialize_model_from_torch": (
            "(self, model_name, model_type, torch_model, model_config, save_dir=None, "
            "as_model_path=None, as_weight_path=None, data_type='float32', derive_type='lmhead', "
            "multigpu_mode=1, do_binary_add_fused=True, do_dynamic_quantize_convert=False, "
            "quant_config=None, enable_i8cache_mha=False, mha_kv_cache_config=None, "
            "use_dynamic_ntk=False, use_logn_attn=False, model_sequence_length=2048, "
            "seqlen_extrapolation=1.0, lora_cfg=None, rotary_base=10000.0)"
        ),
        "dump_build_meta_to_proto": "(self, model_proto, weights_path, torch_build_param)",
        "process_json_mode_arguments": "(self, generate_config)",
        "print_gen_cfg": "(self, gen_cfg)",
    },
    "ASGenerationConfigBuilder": {
        # The original's default seed is a number drawn once when the module is imported.
        "__init__": "(self, hf_gen_config=None, seed=None, eos_token_id=0)",
        "do_sample": "(self, flag=True)",
        "early_stopping": "(self, flag=True)",
        "log_probs": "(self, enable_logprobs, top_logprobs)",
        "with_mm_info": "(self, info)",
        "process_eos_tokens": "(hf_gen_config_token_id, out_dict)",
        "build": "(self)",
    },
    "AsModelRuntimeConfigBuilder": {
        "__init__": "(self)",
        "model_name": "(self, model_name)",
        "model_dir": "(self, model_dir, file_name_prefix)",
        "model_file_path": "(self, model_file_name, weight_file_path)",
        "compute_unit": ("(self, target_device, device_id_array=None, compute_thread_in_device=0)"),
        "max_length": "(self, length)",
        "max_batch": "(self, batch)",
        "lora_max_rank": "(self, rank)",
        "lora_max_num": "(self, num)",
        "max_prefill_length": "(self, length)",
        "prefill_cache": "(self, enable=True)",
        "prefix_cache_ttl": "(self, ttl=300)",
        "enable_sparsity_matmul": "(self, enable=False)",
        "kv_cache_mode": "(self, cache_mode)",
        "kv_cache_span_size": "(self, span_size)",
        "set_compute_unit_from_str": "(self, compute_unit)",
        "set_span_init_size": "(self, span_init_size)",
        "parse_device_type": "(compute_unit)",
        "from_dict": "(self, rfield)",
        "update_from_dict": "(self, rfield)",
        "build": "(self)",
    },
    "HuggingFaceModel": {
        "__init__": (
            "(self, pretrain_model_name_or_path, pretrain_model_name, in_memory_serialize=False, "
            "user_set_data_type=None, trust_remote_code=False)"
        ),
        "load_model": (
            "(self, override_data_type=None, direct_load=False, load_format='auto', **kwargs)"
        ),
        "read_model_config": "(self)",
        "init_tokenizer": "(self, padding_side='left')",
        "get_tokenizer": "(self)",
        "set_rope_scale_method": "(self, method, parameter_dict)",
        "init_quantization": "(self, enable=True, customized_quant_config=None)",
        "serialize": (
            "(self, engine, model_output_dir='', enable_quant=False, weight_only_quant=False, "
            "customized_quant_config=None, multinode_mode=True, lora_cfg=None)"
        ),
        "serialize_to_memory": (
            "(self, engine, enable_quant=False, weight_only_quant=False, multinode_mode=True, "
            "customized_quant_config=None, lora_cfg=None)"
        ),
        "serialize_to_path": (
            "(self, engine, model_output_dir='', enable_quant=False, weight_only_quant=False, "
            "skip_if_exists=False, multinode_mode=True, customized_quant_config=None, "
            "lora_cfg=None)"
        ),
        "free_model": "(self)",
        "free_memory_serialize_file": "(self)",
        "create_reference_runtime_config_builder": (
            "(self, engine_model_name, device_type, device_ids, max_batch, max_context_length=-1)"
        ),
        "create_reference_generation_config_builder": "(self, runtimeConfig=None)",
        "get_model_context_length": "(self)",
        "get_model_config": "(self)",
        "export_model_diconfig": "(self, output_path)",
        "get_as_quant_config_and_weight_process": (
            "(self, weight_only_quant=False, customized_quant_config=None)"
        ),
    },
    "DashInferModel": {
        "__init__": (
            "(self, pretrain_model_name_or_path, pretrain_model_name='model', "
            "config_file_path=None, config_content=None)"
        ),
    },
    "DIConfigBuilder": {
        "model": "(self, as_model_config, hf_id='', modelscope_id='')",
        "runtime_config": "(self, as_runtime_cfg)",
        "generation_config": "(self, hf_generation_config)",
        "tokenizer": "(self, source='modelscope', local_path='')",
        "build_yaml_path": "(self, output_path)",
        "build_py_obj": "(self)",
    },
    "ResultQueue": {
        "GenerateStatus": "(self)",
        "GeneratedLength": "(self)",
        "RequestStatInfo": "(self)",
        "Get": "(self)",
        "GetWithTimeout": "(self, timeout_ms)",
        "GetNoWait": "(self)",
    },
    "PromptTemplate": {"apply_chatml_template": "(inputs)"},
}

# The page shows these, the original doesn't have them.
FLUENT_SETTERS = ["max_length", "temperature", "top_k", "top_p"]

MODEL_CONFIG_ORDER = [  # of its constructor's arguments
    "model_name",
    "model_path",
    "weights_path",
    "compute_unit",
    "engine_max_length",
    "engine_max_batch",
    "engine_max_prefill_length",
    "swap_threshold",
    "text_graph",
    "num_threads",
    "matmul_precision",
    "lora_names",
    "cache_span_size",
    "cache_span_num_init",
    "cache_span_num_grow",
    "enable_prefix_cache",
    "prefix_cache_ttl",
    "prefill_mode",
    "cache_mode",
    "eviction_strategy",
    "scheduling_strategy",
    "enable_sparsity_matmul",
]
MODEL_CONFIG_DEFAULTS = {
    "model_name": "",
    "model_path": "",
    "weights_path": "",
    "compute_unit": "CUDA:0",
    "engine_max_length": 2048,
    "engine_max_batch": 32,
    "engine_max_prefill_length": 0,
    "num_threads": 0,
    "matmul_precision": "highest",
    "swap_threshold": -1,
    "text_graph": False,
    "cache_span_size": 128,
    "cache_span_num_init": 0,
    "cache_span_num_grow": 0,
    "enable_prefix_cache": True,
    "prefix_cache_ttl": 300,
    "cache_mode": 0,
    "prefill_mode": 0,
    "eviction_strategy": 0,
    "scheduling_strategy": 0,
    "enable_sparsity_matmul": False,
    "lora_names": [],
    "lora_max_rank": 64,
    "lora_max_num": 5,
}

GENERATION_DEFAULTS = {
    "do_sample": True,
    "num_beams": 1,
    "num_return_sequences": 1,
    "early_stopping": True,
    "stop_words_ids": [],
    "eos_token_id": None,  # the original's 102 fits no model
    "seed": None,  # the original's 0 makes every request draw the same
    "bad_words_ids": [],
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "suppress_repetition_in_generation": False,
    "no_repeat_ngram_size": 0,
    "logprobs": False,
    "top_logprobs": 0,
    "min_length": 0,
    "max_length": 20,
    "lora_name": "",
    "mm_info": None,
    "response_format": {},
    "vocab": None,
    "vocab_type": None,
    "uuid": "",
    "enable_tensors_from_model_inference": False,
}

REQUEST_STAT_KEYS = [
    "arrival_time",
    "first_token_time",
    "last_token_time",
    "time_to_first_token",
    "time_in_queue",
    "finished_time",
    "context_token_length",
    "generated_token_length",
    "context_cached_length",
    "context_tps",
    "generate_tps",
]
# RequestStatInfo has the same as attributes, but for this one.
REQUEST_STAT_ATTRIBUTES = {"finished_time": "finish_time"}

ENGINE_STAT_ATTRIBUTES = [
    "model_name",
    "free_token",
    "total_token",
    "pendding_request",
    "running_request",
    "total_generated_token",
    "total_prefill_token",
    "generate_token_persec",
    "process_token_persec",
    "total_device_memory_pool_size",
    "used_device_memory_pool_size",
    "prefix_cache_hit_token",
    "prefix_cache_miss_token",
    "prefix_cache_hit_rate",
    "prefix_cache_miss_rate",
]
ENGINE_STAT_ONLY_IN_DICT = [
    "total_span",
    "used_span",
    "free_span",
    "span_size",
    "token_usage_percentage",
]
FILE_INFO = ["create_version_graph", "create_version_param", "current_version_engine"]

ELEMENT_ATTRIBUTES = [
    "ids_from_generate",
    "log_probs_list",
    "token_logprobs_list",
    "tensors_from_model_inference",
    "prefix_cache_len",
    "prefix_len_gpu",
    "prefix_len_cpu",
]

ENVIRONMENT = {
    "BFC_ALLOCATOR": True,
    "BFC_MEM_RATIO": 0.975,
    "BFC_LEFTOVER_MB": 600,
    "BFC_ALLOW_GROWTH": True,
    "CPU_CACHE_RATIO": 0.0,
    "ALLSPARK_TIME_LOG": 0,
    "HIE_LOG_STATUS_INTERVAL": 5,
    "ALLSPARK_USE_TORCH_SAMPLE": None,
    "ALLSPARK_DISABLE_WARMUP": 0,
    "AS_FLASH_THRESH": 1024,
    "AS_PROFILE": "OFF",
    "ALLSPARK_KVCACHE_ALLOC_SIZE": None,
    "AS_WEIGHT_LOAD_FROM_MMAP": False,
    "HIE_LOG_DIR": "",
    "HIE_LOG_LEVEL": "",
    "HIE_PARAM_CHECK_LEVEL": 0,
    "AS_NUMA_NUM": None,
    "AS_DAEMON_PATH": None,
    "AS_NUMA_OFFSET": None,
    "AS_USE_BF16_GEMM": None,
}

"""The golden cases: one published-style config.json each, and what the case is there to catch."""

from __future__ import annotations

from typing import Any

from case_types import Case, Twin, base, v5_style
from cases_layers import LAYER_CASES
from cases_moe import MOE_CASES
from cases_states import STATE_CASES


def llama(storage: str, **changes: Any) -> dict[str, Any]:
    return base(
        "LlamaForCausalLM",
        "llama",
        **{"attention_bias": False, "mlp_bias": False, "torch_dtype": storage} | changes,
    )


def qwen2(storage: str, **changes: Any) -> dict[str, Any]:
    published = {
        "attention_dropout": 0.0,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "sliding_window": 48,
        "max_window_layers": 2,
        "torch_dtype": storage,
    }
    return base("Qwen2ForCausalLM", "qwen2", **published | changes)


def qwen3(storage: str, **changes: Any) -> dict[str, Any]:
    published = {
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 2,
        "torch_dtype": storage,
    }
    return base("Qwen3ForCausalLM", "qwen3", **published | changes)


def ernie(architecture: str, **changes: Any) -> dict[str, Any]:
    config = base(
        architecture,
        "ernie4_5",
        pad_token_id=0,
        rope_theta=500000,
        use_bias=False,
        use_cache=False,
        tie_word_embeddings=True,
    )
    del config["initializer_range"]
    return config | changes


ERNIE_TIED = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 128,
}
ERNIE_BIAS = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 48,
    "use_bias": True,
    "tie_word_embeddings": False,
}

CASES: tuple[Case, ...] = (
    Case(
        "llama",
        "grouped heads, untied head, head_dim 16, odd vocabulary size, two shards with an index",
        "float32",
        llama("float32", vocab_size=271),
        shards=2,
    ),
    Case(
        "llama_tied_mqa",
        "four heads on one key/value head, tied head, head_dim 48 with hidden 64",
        "bfloat16",
        llama(
            "bfloat16",
            num_key_value_heads=1,
            head_dim=48,
            tie_word_embeddings=True,
        ),
    ),
    Case(
        "llama_bf16",
        "bfloat16 weights, head_dim 64, as many key/value heads as heads",
        "bfloat16",
        llama("bfloat16", num_attention_heads=2, head_dim=64),
    ),
    Case(
        "llama_f16",
        "float16 weights, one key/value head",
        "float16",
        llama("float16", num_attention_heads=2, num_key_value_heads=1),
    ),
    Case(
        "llama_bias_hd256",
        "attention_bias and mlp_bias, head_dim 256, transformers 5 config keys",
        "bfloat16",
        v5_style(
            llama(
                "bfloat16",
                hidden_size=48,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=256,
                attention_bias=True,
                mlp_bias=True,
            ),
            rope_type="default",
        ),
    ),
    Case(
        "llama3_rope",
        "llama3 rope scaling: kept, blended and divided frequencies all occur",
        "bfloat16",
        llama(
            "bfloat16",
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=64,
            rope_theta=500000.0,
            rope_scaling={
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
                "rope_type": "llama3",
            },
        ),
        generation={"bos_token_id": 1, "do_sample": True, "eos_token_id": [2, 3, 4]},
    ),
    Case(
        "llama_linear",
        "linear rope scaling in the old spelling (type, no rope_type)",
        "bfloat16",
        llama("bfloat16", rope_scaling={"type": "linear", "factor": 4.0}),
    ),
    Case(
        "llama_dynamic",
        "dynamic NTK: prompts behind max_position_embeddings and decodes that cross it",
        "bfloat16",
        llama(
            "bfloat16",
            max_position_embeddings=64,
            rope_scaling={"type": "dynamic", "factor": 4.0},
        ),
    ),
    Case(
        "llama_yarn",
        "yarn with mscale pair, own betas, truncate off, transformers 5 keys, head_dim 80",
        "bfloat16",
        v5_style(
            llama("bfloat16", num_attention_heads=2, num_key_value_heads=1, head_dim=80),
            rope_type="yarn",
            factor=8.0,
            original_max_position_embeddings=64,
            beta_fast=8.0,
            beta_slow=0.5,
            mscale=1.2,
            mscale_all_dim=0.4,
            truncate=False,
        ),
    ),
    Case(
        "mistral_window",
        "sliding window of 24 tokens in every layer, head_dim 96",
        "bfloat16",
        base(
            "MistralForCausalLM",
            "mistral",
            attention_dropout=0.0,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=96,
            sliding_window=24,
            torch_dtype="bfloat16",
        ),
    ),
    Case(
        "qwen2",
        "bias on q, k and v only, tied head, a sliding_window that is switched off",
        "bfloat16",
        qwen2(
            "bfloat16",
            hidden_size=96,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        ),
        generation={
            "bos_token_id": 1,
            "do_sample": True,
            "eos_token_id": [2, 3],
            "pad_token_id": 0,
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.8,
        },
    ),
    Case(
        "qwen2_window",
        "layer 0 full, layers 1 and 2 with a window of 32 (use_sliding_window)",
        "bfloat16",
        qwen2(
            "bfloat16",
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=32,
            max_window_layers=1,
        ),
    ),
    Case(
        "qwen2_yarn",
        "yarn as the Qwen2.5 cards write it: factor, original length, type",
        "bfloat16",
        qwen2(
            "bfloat16",
            max_position_embeddings=256,
            num_attention_heads=2,
            rope_scaling={
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "type": "yarn",
            },
        ),
    ),
    Case(
        "qwen3",
        "norm on q and k, head_dim 128 with hidden 64, tied head",
        "bfloat16",
        qwen3(
            "bfloat16",
            head_dim=128,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=263,
            tie_word_embeddings=True,
        ),
    ),
    Case(
        "qwen3_window",
        "norm on q and k, layer_types in the config, attention_bias, untied, transformers 5 keys",
        "float32",
        v5_style(
            qwen3(
                "float32",
                head_dim=16,
                attention_bias=True,
                use_sliding_window=True,
                sliding_window=20,
                layer_types=["sliding_attention", "full_attention"],
            ),
            rope_type="default",
        ),
    ),
    Case(
        "qwen3_fp8",
        "FP8 linears with a scale for each block of 128 x 128, of which some are cut short",
        "float32",
        qwen3(
            "float32",
            intermediate_size=144,
            head_dim=48,
            num_attention_heads=3,
            num_key_value_heads=1,
            vocab_size=131,
            tie_word_embeddings=True,
            quantization_config={
                "quant_method": "fp8",
                "activation_scheme": "dynamic",
                "fmt": "e4m3",
                "weight_block_size": [128, 128],
                "modules_to_not_convert": ["lm_head"],
            },
        ),
    ),
    Case(
        "llama_fp8",
        "FP8 linears with a scale for each feature, as compressed-tensors writes them",
        "float32",
        llama(
            "float32",
            vocab_size=131,
            tie_word_embeddings=True,
            quantization_config={
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "ignore": ["lm_head"],
                "quantization_status": "compressed",
                "kv_cache_scheme": None,
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {
                            "num_bits": 8,
                            "type": "float",
                            "strategy": "channel",
                            "symmetric": True,
                            "dynamic": False,
                            "observer": "minmax",
                        },
                        "input_activations": {
                            "num_bits": 8,
                            "type": "float",
                            "strategy": "token",
                            "symmetric": True,
                            "dynamic": True,
                        },
                        "output_activations": None,
                    }
                },
            },
        ),
    ),
    Case(
        "llama_mxfp4",
        "MXFP4 linears, blocks of 32 inputs with a scale, as compressed-tensors writes them",
        "float32",
        llama(
            "float32",
            vocab_size=131,
            tie_word_embeddings=True,
            quantization_config={
                "quant_method": "compressed-tensors",
                "format": "mxfp4-pack-quantized",
                "ignore": ["lm_head"],
                "quantization_status": "compressed",
                "kv_cache_scheme": None,
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "format": "mxfp4-pack-quantized",
                        "weights": {
                            "num_bits": 4,
                            "type": "float",
                            "strategy": "group",
                            "group_size": 32,
                            "scale_dtype": "torch.uint8",
                            "zp_dtype": "torch.uint8",
                            "symmetric": True,
                            "dynamic": False,
                            "observer": "memoryless_minmax",
                        },
                        "input_activations": None,
                        "output_activations": None,
                    }
                },
            },
        ),
    ),
    Case(
        "ernie4_5",
        "interleaved rope, tied head, head_dim 128; config as Baidu's PyTorch release has it",
        "bfloat16",
        ernie(
            "Ernie4_5_ForCausalLM",
            auto_map={
                "AutoConfig": "configuration_ernie4_5.Ernie4_5_Config",
                "AutoModel": "modeling_ernie4_5.Ernie4_5_Model",
                "AutoModelForCausalLM": "modeling_ernie4_5.Ernie4_5_ForCausalLM",
            },
            torch_dtype="bfloat16",
            **ERNIE_TIED,
        ),
        twins=(
            Twin(
                "ernie4_5_paddle",
                "paddle",
                ernie("Ernie4_5_ForCausalLM", dtype="bfloat16", **ERNIE_TIED),
            ),
        ),
    ),
    Case(
        "ernie4_5_bias",
        "use_bias, untied head, head_dim 48",
        "bfloat16",
        ernie("Ernie4_5ForCausalLM", torch_dtype="bfloat16", **ERNIE_BIAS),
        twins=(
            Twin(
                "ernie4_5_bias_paddle",
                "paddle",
                ernie("Ernie4_5_ForCausalLM", dtype="bfloat16", **ERNIE_BIAS),
            ),
        ),
    ),
    *MOE_CASES,
    *LAYER_CASES,
    *STATE_CASES,
)

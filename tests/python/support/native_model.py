"""A model for the tests of the native API: real engine, random weights, small steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_folders import byte_level, byte_level_folder, write_config

from headrace import GenerationConfig, ModelOptions

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1 << 20,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
ENDLESS = GenerationConfig(temperature=0, max_tokens=100_000, ignore_eos=True)


def greedy(max_tokens: int) -> GenerationConfig:
    return GenerationConfig(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def options(folder: Path, **values: Any) -> ModelOptions:
    defaults = {"num_threads": 1, "max_num_seqs": 8, "kv_cache_bytes": 16 << 20}
    return ModelOptions(path=str(folder), dummy_weights=True, **{**defaults, **values})


def make_folder(path: Path) -> Path:
    """A model folder with a byte-level tokenizer and no weights."""
    byte_level_folder(path)
    write_config(path, byte_level().get_vocab_size(), **LLAMA)
    return path

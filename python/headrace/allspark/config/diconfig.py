"""DIConfigBuilder: a model's whole configuration as a dict or a file.

The file is written as JSON, which is YAML, too, and is read back without a YAML package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.allspark.core.as_model_config import AsModelConfig, parse_compute_unit

__all__ = [
    "DIConfigBuilder",
    "parse_diconfig",
    "read_diconfig",
]

FILE_NAME = "dimodel_config.yaml"
_MODEL_KEYS = (
    "architectures",
    "hidden_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_theta",
    "sliding_window",
    "use_sliding_window",
    "vocab_size",
)
_GENERATION_KEYS = (
    "do_sample",
    "early_stopping",
    "eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "presence_penalty",
    "repetition_penalty",
    "stop_words_ids",
    "temperature",
    "top_k",
    "top_p",
)
_MAX_FILE_BYTES = 16 << 20


class DIConfigBuilder:
    """Collects the four sections; every method but the last two returns self."""

    def __init__(self) -> None:
        self.model_dict: dict[str, Any] = {}
        self.runtime_config_dict: dict[str, Any] = {}
        self.generation_config_dict: dict[str, Any] = {}
        self.tokenizer_dict: dict[str, Any] = {}

    def model(
        self, as_model_config: Mapping[str, Any], hf_id: str = "", modelscope_id: str = ""
    ) -> DIConfigBuilder:
        """as_model_config: a model's config.json as a dict."""
        ids = {"huggingface_id": hf_id, "modelscope_id": modelscope_id}
        self.model_dict = {**ids, **_chosen(_MODEL_KEYS, as_model_config)}
        return self

    def runtime_config(self, as_runtime_cfg: AsModelConfig) -> DIConfigBuilder:
        kind, ids = parse_compute_unit(as_runtime_cfg.compute_unit)
        self.runtime_config_dict = {
            "model_name": as_runtime_cfg.model_name,
            "engine_max_length": as_runtime_cfg.engine_max_length,
            "engine_max_batch": as_runtime_cfg.engine_max_batch,
            "matmul_precision": as_runtime_cfg.matmul_precision,
            "lora_names": list(as_runtime_cfg.lora_names),
            "compute_unit": {
                "device_type": kind,
                "device_ids": ids,
                "compute_thread_in_device": as_runtime_cfg.num_threads,
            },
            "kv_cache_mode": as_runtime_cfg.cache_mode.name,
            "kv_cache_span_size": as_runtime_cfg.cache_span_size,
            "enable_prefix_cache": as_runtime_cfg.enable_prefix_cache,
            "prefix_cache_ttl": as_runtime_cfg.prefix_cache_ttl,
            "cuda_mem": {},
            "eviction_strategy": as_runtime_cfg.eviction_strategy.name,
        }
        return self

    def generation_config(self, hf_generation_config: Mapping[str, Any]) -> DIConfigBuilder:
        self.generation_config_dict = _chosen(_GENERATION_KEYS, hf_generation_config)
        return self

    def tokenizer(self, source: str = "modelscope", local_path: str = "") -> DIConfigBuilder:
        self.tokenizer_dict = {"source": source, "local_path": local_path}
        return self

    def build_py_obj(self) -> dict[str, Any]:
        return {
            "model": self.model_dict,
            "runtime_config": self.runtime_config_dict,
            "generation_config": self.generation_config_dict,
            "tokenizer": self.tokenizer_dict,
        }

    def build_yaml_path(self, output_path: str | os.PathLike[str]) -> None:
        text = json.dumps(self.build_py_obj(), indent=2, ensure_ascii=False)
        Path(output_path).write_text(text + "\n", encoding="utf-8")


def _chosen(names: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def parse_diconfig(text: str) -> dict[str, Any]:
    """The sections of a configuration. Raises ValueError, ImportError for want of a YAML package.

    Other YAML than JSON needs PyYAML.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = _parse_yaml(text)
    if not isinstance(value, dict):
        raise ValueError("config parse error: a mapping with the sections is expected")
    return value


def read_diconfig(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The same for a file."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no configuration {file}")
    if file.stat().st_size > _MAX_FILE_BYTES:
        raise ValueError(f"{file} is larger than {_MAX_FILE_BYTES} bytes")
    return parse_diconfig(file.read_text(encoding="utf-8"))


def _parse_yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError(
            "reading a configuration that is YAML but not JSON needs PyYAML: pip install pyyaml"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"config parse error: {error}") from error

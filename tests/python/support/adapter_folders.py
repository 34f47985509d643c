"""PEFT folders, and checkpoints with an adapter merged into the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from model_folders import write_json


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """In float32."""
    header: dict[str, Any] = {}
    data = b""
    for name, values in tensors.items():
        start = len(data)
        data += values.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [start, len(data)],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_adapter(
    folder: Path,
    halves: Mapping[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
    targets: Sequence[str],
    task: str = "CAUSAL_LM",
) -> Path:
    """halves: A [rank, k] and B [n, rank] by module path, whose product is added as it is."""
    folder.mkdir(parents=True)
    tensors = {}
    for path, (a, b) in halves.items():
        tensors[f"base_model.model.{path}.lora_A.weight"] = a
        tensors[f"base_model.model.{path}.lora_B.weight"] = b
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    rank = len(next(iter(halves.values()))[0])
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": list(targets),
        "bias": "none",
        "task_type": task,
    }
    write_json(folder / "adapter_config.json", config)
    return folder

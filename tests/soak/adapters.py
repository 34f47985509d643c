"""PEFT folders with random numbers for the models of tests/python/support/native_model.py."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any


def make_adapter(folder: Path, config: dict[str, Any], rank: int, seed: int) -> Path:
    """An adapter of the query and value projections of every layer."""
    rng = random.Random(seed)
    hidden = config["hidden_size"]
    head = hidden // config["num_attention_heads"]
    rows = {"q_proj": hidden, "v_proj": config["num_key_value_heads"] * head}
    shapes = {}
    for layer in range(config["num_hidden_layers"]):
        for name, size in rows.items():
            base = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            shapes[f"{base}.lora_A.weight"] = (rank, hidden)
            shapes[f"{base}.lora_B.weight"] = (size, rank)
    header: dict[str, Any] = {}
    data = b""
    for name, shape in shapes.items():
        count = shape[0] * shape[1]
        start = len(data)
        data += struct.pack(f"<{count}f", *(rng.uniform(-0.5, 0.5) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    adapter = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": list(rows),
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    return folder

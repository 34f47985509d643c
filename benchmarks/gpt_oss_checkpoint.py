"""Checkpoints of gpt-oss's shapes: experts in MXFP4 as published, all else bfloat16."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

CONFIG_20B = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "moe_intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "attention_bias": True,
    "rope_theta": 150000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    },
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUP = 32  # numbers of a scale
GROUP_BYTES = 17  # of codes and scale
SCALE = 119  # 2^-8: weights up to 0.023
POOL = 1 << 24


def published(config: dict[str, Any]) -> dict[str, Any]:
    """config.json as the makers write it."""
    out = dict(config)
    out["num_local_experts"] = out.pop("num_experts")
    del out["moe_intermediate_size"]
    kinds = ("sliding_attention", "full_attention")
    out["layer_types"] = [kinds[i % 2] for i in range(config["num_hidden_layers"])]
    linears = ["model.layers.*.self_attn", "model.layers.*.mlp.router"]
    out["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [*linears, "model.embed_tokens", "lm_head"],
    }
    return out


def stored(config: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of each tensor of the file, in its order."""
    hidden, d, vocab = config["hidden_size"], config["head_dim"], config["vocab_size"]
    out: dict[str, tuple[str, tuple[int, ...]]] = {}

    def add(name: str, *shape: int, kind: str = "BF16") -> None:
        out[name] = (kind, shape)

    add("model.embed_tokens.weight", vocab, hidden)
    add("model.norm.weight", hidden)
    add("lm_head.weight", vocab, hidden)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    experts, width = config["num_experts"], config["moe_intermediate_size"]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        add(f"{layer}input_layernorm.weight", hidden)
        add(f"{layer}post_attention_layernorm.weight", hidden)
        for name, rows in (("q", heads * d), ("k", kv_heads * d), ("v", kv_heads * d)):
            add(f"{layer}self_attn.{name}_proj.weight", rows, hidden)
            add(f"{layer}self_attn.{name}_proj.bias", rows)
        add(f"{layer}self_attn.o_proj.weight", hidden, heads * d)
        add(f"{layer}self_attn.o_proj.bias", hidden)
        add(f"{layer}self_attn.sinks", heads)
        add(f"{layer}mlp.router.weight", experts, hidden)
        add(f"{layer}mlp.router.bias", experts)
        for name, n, k in (("gate_up", 2 * width, hidden), ("down", hidden, width)):
            stem = f"{layer}mlp.experts.{name}_proj_"
            add(f"{stem}bias", experts, n)
            add(f"{stem}blocks", experts, n, k // GROUP, GROUP // 2, kind="U8")
            add(f"{stem}scales", experts, n, k // GROUP, kind="U8")
    return out


def write_tensors(config: dict[str, Any], file: Path, spread: float, seed: int) -> None:
    """`spread`: of bfloat16 matrices; codes are all equally likely."""
    header: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, (kind, shape) in stored(config).items():
        size = int(np.prod(shape)) * (2 if kind == "BF16" else 1)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(seed)
    # The upper halves of float32 numbers.
    floats = (rng.standard_normal(POOL, dtype=np.float32) * np.float32(spread)).view(np.uint32)
    numbers = (floats >> 16).astype(np.uint16).view(np.uint8)
    codes = rng.integers(0, 256, POOL, dtype=np.uint8)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            size = entry["data_offsets"][1] - entry["data_offsets"][0]
            if name.endswith("norm.weight"):
                out.write(np.full(size // 2, 0x3F80, np.uint16).tobytes())
            elif name.endswith(("bias", "sinks")):
                out.write(bytes(size))
            elif name.endswith("_scales"):
                out.write(bytes([SCALE]) * size)
            else:
                _write_repeated(out, codes if name.endswith("_blocks") else numbers, size)


def _write_repeated(out: BinaryIO, pool: np.ndarray, size: int) -> None:
    for begin in range(0, size, pool.size):
        out.write(pool[: size - begin].tobytes())

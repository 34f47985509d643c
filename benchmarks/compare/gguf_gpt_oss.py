"""gpt-oss's tensors as GGUF has them, for gguf_file.py."""

from __future__ import annotations

import json
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

KINDS = gguf.GGMLQuantizationType
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.router": "ffn_gate_inp",
}
ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
EXPERTS = re.compile(r"mlp\.experts\.(gate_up|down)_proj_(bias|blocks)")


def describe(writer: gguf.GGUFWriter, config: dict) -> None:
    """What gguf_file.describe leaves out."""
    scaling = config["rope_scaling"]
    writer.add_sliding_window(config["sliding_window"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(scaling["factor"])
    writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def tensors(file: Path) -> Iterator[tuple[str, np.ndarray, gguf.GGMLQuantizationType]]:
    """Name, contents as stored and kind of each."""
    with file.open("rb") as data:
        whole = np.frombuffer(mmap.mmap(data.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    length = struct.unpack("<Q", whole[:8].tobytes())[0]
    header = json.loads(whole[8 : 8 + length].tobytes())

    def read(name: str) -> np.ndarray:
        begin, end = (8 + length + at for at in header[name]["data_offsets"])
        return whole[begin:end].reshape(-1)

    for name, entry in header.items():
        if name.endswith("_scales"):
            continue
        target, _, rest = _names(name)
        if name.endswith("_blocks"):
            blocks = read(name).reshape(entry["shape"])
            scales = read(name.replace("_blocks", "_scales")).reshape(*entry["shape"][:3], 1)
            for part, which in _parts(target, rest):
                yield part, _interleaved(blocks[:, which], scales[:, which]), KINDS.MXFP4
            continue
        bits = read(name).view(np.uint16).reshape(entry["shape"])
        floats = (bits.astype(np.uint32) << 16).view(np.float32)
        if name.endswith("_bias"):
            for part, which in _parts(target, rest):
                yield part, np.ascontiguousarray(floats[:, which]), KINDS.F32
        elif bits.ndim == 1 or "router" in name:
            yield target, floats, KINDS.F32
        else:
            yield target, bits.view(np.uint8), KINDS.BF16


def _names(name: str) -> tuple[str, str, str]:
    """Of GGUF (of experts the stem); the layer; which experts' product it is, or ""."""
    if name in ENDS:
        return ENDS[name], "", ""
    _, _, layer, rest = name.split(".", 3)
    expert = EXPERTS.fullmatch(rest)
    if expert is not None:
        kind = "weight" if expert[2] == "blocks" else "bias"
        return f"blk.{layer}.ffn_{{}}_exps.{kind}", layer, expert[1]
    if rest == "self_attn.sinks":
        return f"blk.{layer}.attn_sinks.weight", layer, ""
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{NAMES[module]}.{kind}", layer, ""


def _parts(stem: str, product: str) -> list[tuple[str, slice]]:
    """gate and up lie side by side, feature by feature."""
    if product == "down":
        return [(stem.format("down"), slice(None))]
    return [(stem.format("gate"), slice(0, None, 2)), (stem.format("up"), slice(1, None, 2))]


def _interleaved(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[E, n, k / 32, 16], bytes of codes 2j and 2j + 1, as [E, n, k / 32 * 17]: the scale, then
    bytes of codes j and j + 16."""
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:-1], 32)
    halves = codes[..., :16] | codes[..., 16:] << 4
    joined = np.concatenate([scales, halves], -1)
    return joined.reshape(*joined.shape[:2], -1)

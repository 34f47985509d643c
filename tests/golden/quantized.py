"""Checkpoints as quantization tools write them, made of one that isn't quantized, with numpy.

quantize() rounds; gptq(), awq(), packed() and int8() lay codes out as AutoGPTQ/GPTQModel, AutoAWQ
and compressed-tensors do; dequantized() says what they mean. write() makes a folder.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_NAMES = {"<f4": "F32", "<f2": "F16", "<i4": "I32", "<i8": "I64", "|i1": "I8", "<u2": "BF16"}
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Tensors = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """w[n, k] = scales[n, g] * (codes[n, k] - zeros[n, g]), g = g_idx[k]."""

    bits: int
    codes: np.ndarray  # int64 [n, k]
    scales: np.ndarray  # float16 [n, groups]
    zeros: np.ndarray  # int64 [n, groups]
    g_idx: np.ndarray  # int32 [k]


def quantize(
    weight: np.ndarray, bits: int, group: int, *, symmetric: bool, shuffle: int | None = None
) -> Layer:
    """To the nearest code. `group` -1: one for each row. `shuffle`: seed of an act-order."""
    n, k = weight.shape
    size = k if group == -1 else group
    g_idx = (np.arange(k) // size).astype(np.int32)
    if shuffle is not None:
        g_idx = np.random.default_rng([shuffle, k]).permutation(g_idx)
    groups = int(g_idx.max()) + 1
    top = 2**bits - 1
    low = np.zeros((n, groups), np.float32)
    high = np.zeros((n, groups), np.float32)
    for g in range(groups):
        low[:, g] = np.minimum(weight[:, g_idx == g].min(axis=1), 0)
        high[:, g] = np.maximum(weight[:, g_idx == g].max(axis=1), 0)
    middle = 2 ** (bits - 1)
    scales = np.maximum(high, -low) / (middle - 1) if symmetric else (high - low) / top
    scales = np.maximum(scales, 1e-4).astype(np.float16)
    wide = scales.astype(np.float32)
    zeros = np.full((n, groups), middle) if symmetric else np.clip(np.rint(-low / wide), 1, top)
    zeros = zeros.astype(np.int64)
    codes = np.clip(np.rint(weight / wide[:, g_idx]) + zeros[:, g_idx], 0, top).astype(np.int64)
    return Layer(bits, codes, scales, zeros, g_idx)


def dequantized(layer: Layer) -> np.ndarray:
    """float32 [n, k]."""
    codes = (layer.codes - layer.zeros[:, layer.g_idx]).astype(np.float32)
    return codes * layer.scales.astype(np.float32)[:, layer.g_idx]


def words(values: np.ndarray, bits: int) -> np.ndarray:
    """int32: the last axis in words of 32 bits, the first value in the lowest."""
    per_word = 32 // bits
    short = -values.shape[-1] % per_word
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, short)])
    lanes = padded.reshape(*values.shape[:-1], -1, per_word).astype(np.uint64)
    shifted = lanes << (np.arange(per_word, dtype=np.uint64) * np.uint64(bits))
    return shifted.sum(axis=-1).astype(np.uint32).view(np.int32)


def gptq(name: str, layer: Layer, *, v2: bool = False) -> Tensors:
    zeros = layer.zeros.T if v2 else layer.zeros.T - 1
    return {
        f"{name}.qweight": words(layer.codes, layer.bits).T,
        f"{name}.qzeros": words(zeros, layer.bits),
        f"{name}.scales": layer.scales.T,
        f"{name}.g_idx": layer.g_idx,
    }


def awq(name: str, layer: Layer) -> Tensors:
    def interleaved(values: np.ndarray) -> np.ndarray:
        eights = values.reshape(values.shape[0], -1, 8)
        return words(eights[:, :, _AWQ_ORDER].reshape(values.shape), 4)

    return {
        f"{name}.qweight": interleaved(layer.codes.T),
        f"{name}.qzeros": interleaved(layer.zeros.T),
        f"{name}.scales": layer.scales.T,
    }


def packed(name: str, layer: Layer, *, zero_bytes: bool = False) -> Tensors:
    """compressed-tensors, pack-quantized."""
    out = {
        f"{name}.weight_packed": words(layer.codes, layer.bits),
        f"{name}.weight_scale": layer.scales,
        f"{name}.weight_shape": np.array(layer.codes.shape, np.int64),
    }
    middle = 2 ** (layer.bits - 1)
    if zero_bytes:
        out[f"{name}.weight_zero_point"] = (layer.zeros - middle).astype(np.int8)
    elif (layer.zeros != middle).any():
        out[f"{name}.weight_zero_point"] = words(layer.zeros.T, layer.bits).T
    if (np.diff(layer.g_idx) < 0).any():
        out[f"{name}.weight_g_idx"] = layer.g_idx
    return out


def int8(name: str, layer: Layer) -> Tensors:
    """compressed-tensors, int-quantized."""
    out = {
        f"{name}.weight": (layer.codes - 128).astype(np.int8),
        f"{name}.weight_scale": layer.scales.astype(np.float32),
    }
    if (layer.zeros != 128).any():
        out[f"{name}.weight_zero_point"] = (layer.zeros - 128).astype(np.int8)
    return out


def read(folder: Path) -> Tensors:
    """The tensors of model.safetensors as float32."""
    raw = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    out = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin : 8 + length + end]
        kind = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}[entry["dtype"]]
        values = np.frombuffer(data, kind)
        if kind == "<u2":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        out[name] = values.astype(np.float32).reshape(entry["shape"])
    return out


def write(folder: Path, tensors: Tensors) -> None:
    header: dict[str, Any] = {}
    blob = bytearray()
    for name, values in tensors.items():
        data = np.ascontiguousarray(values).tobytes()
        offsets = [len(blob), len(blob) + len(data)]
        shape = list(values.shape)
        header[name] = {"dtype": _NAMES[values.dtype.str], "shape": shape, "data_offsets": offsets}
        blob += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = folder / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(blob))


def make(
    source: Path,
    folder: Path,
    quantization: dict[str, Any] | None,
    change: Callable[[str, np.ndarray], Tensors],
) -> None:
    """A copy of `source` in which change(name, weight) stands for each linear layer of the stack;
    the rest is kept as float32."""
    folder.mkdir()
    for path in source.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    config = json.loads((source / "config.json").read_text())
    if quantization is not None:
        config["quantization_config"] = quantization
    config["torch_dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config))
    tensors: Tensors = {}
    for name, values in read(source).items():
        if "_proj.weight" in name:
            tensors |= change(name.removesuffix(".weight"), values)
        else:
            tensors[name] = values
    write(folder, tensors)

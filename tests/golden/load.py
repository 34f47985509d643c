"""Reads golden cases with numpy alone.

for name in case_names():
    golden = load_case(name)
    golden.prompts[0].logits        # float32 [steps, vocabulary]
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent
_NUMPY = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "U8": np.uint8,
}
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


@dataclasses.dataclass(frozen=True, slots=True)
class GoldenPrompt:
    """What float32 transformers says about one prompt."""

    prompt: list[int]
    tokens: list[int]  # greedy continuation
    logits: np.ndarray  # float32 [len(steps), vocabulary]
    token_logprobs: np.ndarray  # float32 [len(tokens)], of each greedy token
    gaps: np.ndarray  # float32 [len(tokens)], best logit minus second best
    prompt_logprobs: np.ndarray  # float32 [len(prompt) - 1], of prompt[1:]


@dataclasses.dataclass(frozen=True, slots=True)
class Golden:
    """One case. `folder` is the checkpoint; `steps` names the rows of each `logits`."""

    name: str
    folder: Path
    meta: dict[str, Any]  # golden.json
    prompts: list[GoldenPrompt]

    @property
    def steps(self) -> list[int]:
        return list(self.meta["steps"])

    @property
    def logit_tolerance(self) -> float:
        """Largest allowed |engine - golden| of a logit, engine in float32."""
        return float(self.meta["tolerance"]["logits"])

    @property
    def logprob_tolerance(self) -> float:
        """Largest allowed |engine - golden| of a log-probability, engine in float32."""
        return float(self.meta["tolerance"]["logprobs"])


def case_names() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("*/golden.json"))


def load_case(name: str) -> Golden:
    folder = ROOT / name
    meta = json.loads((folder / "golden.json").read_text())
    arrays = read_safetensors(folder / "golden.safetensors")
    prompts = [
        GoldenPrompt(
            prompt=entry["prompt"],
            tokens=entry["tokens"],
            logits=arrays[f"logits.{index}"],
            token_logprobs=arrays[f"token_logprobs.{index}"],
            gaps=arrays[f"gaps.{index}"],
            prompt_logprobs=arrays.get(f"prompt_logprobs.{index}", np.zeros(0, np.float32)),
        )
        for index, entry in enumerate(meta["prompts"])
    ]
    return Golden(name, folder, meta, prompts)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of one file; bfloat16, float16 and FP8 are widened to float32."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + size :]
    return {name: _array(body, entry) for name, entry in header.items()}


def read_checkpoint(folder: Path) -> dict[str, np.ndarray]:
    """All weights of a checkpoint folder, sharded or not, as float32; codes times their scales."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return _scaled(read_safetensors(folder / "model.safetensors"), folder)
    weight_map = json.loads(index.read_text())["weight_map"]
    shards = {name: read_safetensors(folder / name) for name in set(weight_map.values())}
    return {name: shards[shard][name] for name, shard in weight_map.items()}


def _scaled(tensors: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Under the names, and in the layouts, of weights that aren't quantized."""
    config = json.loads((folder / "config.json").read_text()).get("quantization_config", {})
    out = {name: value for name, value in tensors.items() if ".weight_scale" not in name}
    for name in [name for name in out if name.endswith("_blocks")]:
        pairs, scales = (out.pop(name.replace("_blocks", kind)) for kind in ("_blocks", "_scales"))
        experts, n, groups = scales.shape
        flat = pairs.astype(np.uint8).reshape(experts * n, -1)
        numbers = _mxfp4(flat, scales.reshape(experts * n, groups)).reshape(experts, n, -1)
        out[name.removesuffix("_blocks")] = numbers.transpose(0, 2, 1)
    for name, scales in tensors.items():
        if ".weight_scale" not in name:
            continue
        weight = name.partition("_scale")[0]
        if weight + "_packed" in out:
            out[weight] = _mxfp4(out.pop(weight + "_packed").astype(np.uint8), scales)
            continue
        n, k = out[weight].shape
        rows, cols = config.get("weight_block_size", (1, k))
        wide = scales.repeat(rows, 0).repeat(cols, 1)[:n, :k]
        out[weight] = out[weight] * wide
    return out


def _mxfp4(pairs: np.ndarray, scales: np.ndarray) -> np.ndarray:
    codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(len(pairs), -1)
    return _E2M1[codes] * np.exp2(scales - 127).repeat(32, axis=1)


def _e4m3(codes: np.ndarray) -> np.ndarray:
    exponents, mantissas = codes >> 3 & 15, (codes & 7).astype(np.float32)
    size = np.where(
        exponents == 0,
        np.ldexp(mantissas, -9),
        np.ldexp(8 + mantissas, exponents.astype(np.int32) - 10),
    )
    return np.where(codes >= 0x80, -size, size).astype(np.float32)


def _array(body: memoryview, entry: dict[str, Any]) -> np.ndarray:
    begin, end = entry["data_offsets"]
    raw = np.frombuffer(body[begin:end], _NUMPY[entry["dtype"]]).reshape(entry["shape"])
    if entry["dtype"] == "F8_E4M3":
        return _e4m3(raw)
    if entry["dtype"] == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)

"""What the benchmarks share: limits of this machine, floors, and how figures are printed."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import make_checkpoint

if TYPE_CHECKING:
    from headrace import RequestOutput

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Limits:
    """Rates with all threads: bytes/s and operations/s."""

    read: float
    f32: float
    bf16: float
    int8: float


def limits_binary() -> Path:
    """Compiled once into the temporary folder; needs g++."""
    binary = Path(tempfile.gettempdir()) / f"headrace-limits-{os.getuid()}"
    sources = [ROOT / "benchmarks/limits.cc", ROOT / "benchmarks/peaks.cc"]
    newest = max(source.stat().st_mtime for source in sources)
    if not binary.exists() or binary.stat().st_mtime < newest:
        flags = ["-O3", "-std=c++20", "-pthread", f"-I{ROOT / 'benchmarks'}", f"-I{ROOT}"]
        subprocess.run(["g++", *flags, *sources, "-o", binary], check=True)
    return binary


def measure_limits(threads: int, gib: float = 1.0) -> Limits:
    out = subprocess.run(
        [limits_binary(), str(threads), str(gib)], capture_output=True, text=True, check=True
    )
    found = json.loads(out.stdout)
    return Limits(
        found["read_gb_s"] * 1e9,
        found["f32_gflop_s"] * 1e9,
        found["bf16_gflop_s"] * 1e9,
        found["int8_gop_s"] * 1e9,
    )


def measure_gpu_limits(program: list[str]) -> Limits:
    """Of the first GPU, by gpu_kernel_bench; f32 and int8 are not measured there."""
    if not Path(program[0]).exists():
        raise SystemExit(f"{program[0]} is not there: tests/gpu/run.sh build makes it")
    out = subprocess.run([*program, "--limits"], capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"{program[0]}: {out.stderr.strip()}")
    found = json.loads(out.stdout)
    return Limits(found["read_gb_s"] * 1e9, 0.0, found["bf16_gflop_s"] * 1e9, 0.0)


def matmul_parameters(config: dict[str, Any]) -> int:
    """Parameters that every generated token multiplies: the matrices that it meets, the head
    included, of experts those that it is sent to."""
    active = config["num_experts_per_tok"] if "num_experts" in config else 0
    return _matrices(config, experts=False) + active * expert_parameters(config)


def expert_parameters(config: dict[str, Any]) -> int:
    """Of one expert in all layers; 0 of a model without experts."""
    if "num_experts" not in config:
        return 0
    return _matrices(config, experts=True) // int(config["num_experts"])


def experts_met(config: dict[str, Any], rows: int) -> float:
    """Experts of a layer that some of `rows` rows are sent to, on average, if chance decides."""
    if "num_experts" not in config:
        return 0.0
    experts = int(config["num_experts"])
    missed = 1 - int(config["num_experts_per_tok"]) / experts
    return float(experts * (1 - missed**rows))


def _matrices(config: dict[str, Any], experts: bool) -> int:
    shapes = make_checkpoint.tensor_shapes(config)
    if "lm_head.weight" in shapes:
        del shapes["model.embed_tokens.weight"]
    return sum(
        dims[0] * dims[1]
        for name, dims in shapes.items()
        if len(dims) == 2 and (".experts." in name) == experts
    )


def kv_bytes_per_token(config: dict[str, Any]) -> int:
    per_layer = 2 * config["num_key_value_heads"] * config["head_dim"] * 2
    layers = range(config["num_hidden_layers"])
    return int(per_layer * sum(not make_checkpoint.keeps_state(config, i) for i in layers))


def state_bytes(config: dict[str, Any]) -> int:
    """Of a sequence: each layer's state, and the last inputs of its convolution; float32."""
    layers = range(config["num_hidden_layers"])
    count = sum(make_checkpoint.keeps_state(config, i) for i in layers)
    if count == 0:
        return 0
    heads, wide = config["linear_num_value_heads"], config["linear_value_head_dim"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    window = (2 * keys + heads * wide) * (config["linear_conv_kernel_dim"] - 1)
    return int(4 * count * (heads * config["linear_key_head_dim"] * wide + window))


def decode_floor(config: dict[str, Any], context: float, limits: Limits) -> float:
    """Seconds: a one-token step reads all bf16 matrices and the context's keys and values."""
    bytes_read = 2 * matmul_parameters(config) + context * kv_bytes_per_token(config)
    return bytes_read / limits.read


def prefill_floor(config: dict[str, Any], tokens: int, limits: Limits) -> float:
    """Seconds for `tokens` prompt tokens at the bf16 (else f32) peak; the head for one row."""
    head = config["vocab_size"] * config["hidden_size"]
    operations = 2 * tokens * (matmul_parameters(config) - head) + 2 * head
    d = config["num_attention_heads"] * config["head_dim"]
    operations += config["num_hidden_layers"] * 2 * tokens * tokens * d  # causal half of 2 products
    return float(operations / (limits.bf16 or limits.f32))


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--shape", default="qwen2-0.5b", choices=sorted(make_checkpoint.SHAPES))
    parser.add_argument("--folder", type=Path, help="where checkpoints are kept")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    return parser


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="cpu", help="where it runs: cpu (default), cuda, cuda:N"
    )


def checkpoint(args: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    base = args.folder or Path(tempfile.gettempdir()) / "headrace-checkpoints"
    return make_checkpoint.write(args.shape, base / args.shape), make_checkpoint.SHAPES[args.shape]


def model_seconds(outputs: Sequence[RequestOutput]) -> tuple[float, float]:
    """In the model, up to the last first token, and up to the last token."""
    metrics = [output.metrics for output in outputs]
    first = max(each.first_token_time or 0.0 for each in metrics)
    return first, max(each.model_forward_time or 0.0 for each in metrics)


def median(values: list[float]) -> float:
    return statistics.median(values)


def report(**figures: object) -> None:
    print(json.dumps(figures), flush=True)

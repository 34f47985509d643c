"""headrace info: what a model folder holds and what it takes to run it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from headrace.cli.options import (
    add_engine_options,
    add_model_option,
    load_model,
    model_path,
    tell_of_toy,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "info",
        help="describe a model folder",
        description="Describes a model folder. Without --load no weights are read.",
    )
    add_model_option(parser)
    parser.add_argument("--load", action="store_true", help="load it and show what it really takes")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    facts = _loaded(args) if args.load else _described(args)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {_shown(name, value)}")
    return 0


def _described(args: argparse.Namespace) -> dict[str, Any]:
    from headrace import native
    from headrace.hub import resolve_model

    tell_of_toy(args)
    folder = resolve_model(model_path(args))
    info = native.describe_model(folder)
    shapes = _shapes(info, str(folder))
    weights = _weights(folder)
    shapes["dtype"] = weights.pop("packed_dtype", info.dtype)  # a packed folder's is the file's
    return {
        **shapes,
        **weights,
        **_kv_needs(info, shapes["dtype"], args.max_model_len or info.max_model_len),
        **_machine(native.describe_cpu()),
        **_gpus(),
    }


def _weights(folder: Path) -> dict[str, Any]:
    """The files that a load of the folder reads."""
    from headrace import packed

    files = sorted(folder.glob("*.safetensors"))
    file = folder / packed.FILE_NAME
    if not files and file.is_file():
        facts = packed.describe(file)
        return {
            "packed_file": packed.FILE_NAME,
            "packed_bytes": file.stat().st_size,
            "packed_dtype": facts["dtype"],
            "packed_quantization": facts["quantization"] or "none",
            "packed_layout": facts["layout"],
            "packed_by": facts["written_by"],
        }
    return {
        "checkpoint_files": len(files),
        "checkpoint_bytes": sum(file.stat().st_size for file in files),
    }


def _machine(cpu: Any) -> dict[str, Any]:
    return {
        "cpu": cpu.brand,
        "isa": cpu.isa,
        "isas_available": [isa.name for isa in cpu.isas if not isa.missing],
        "isas_unavailable": [
            f"{isa.name} (no {' '.join(isa.missing)})" for isa in cpu.isas if isa.missing
        ],
        "cores": cpu.cores,
        "num_threads": cpu.num_threads,
        "numa_nodes": cpu.numa_nodes,
        "huge_pages": cpu.huge_pages,
    }


def _gpus() -> dict[str, Any]:
    """What the driver shows, or why there is nothing."""
    from headrace import native

    try:
        gpus = native.describe_gpus()
    except native.HeadraceError as error:
        return {"gpus": [], "no_gpus": str(error)}
    names = ("device", "name", "compute_capability", "total_bytes", "unusable")
    return {"gpus": [{name: getattr(gpu, name) for name in names} for gpu in gpus]}


def _gpu_text(gpu: dict[str, Any]) -> str:
    """One line of the list."""
    card = f"{gpu['device']}: {gpu['name']}, compute capability {gpu['compute_capability']}"
    text = f"{card}, {_size(gpu['total_bytes'])}"
    return f"{text} (unusable: {gpu['unusable']})" if gpu["unusable"] else text


def _loaded(args: argparse.Namespace) -> dict[str, Any]:
    with load_model(args) as llm:
        info = llm.model_info
        return {
            **_shapes(info, info.path),
            "device": info.device,
            "isa": info.isa,
            "replaced_kernels": info.replaced_kernels or "none",
            "quantization": info.quantization or "none",
            "num_threads": info.num_threads,
            "tensor_parallel_size": info.tensor_parallel_size,
            "data_parallel_size": info.data_parallel_size,
            "num_nodes": info.num_nodes,
            "weight_bytes": info.weight_bytes,
            "token_weight_bytes": info.token_weight_bytes,
            "mapped_weight_bytes": info.mapped_weight_bytes,
            "vision_weight_bytes": info.vision_weight_bytes,
            "packed_weights": info.packed_weights or "none",
            "kv_cache_dtype": info.kv_cache_dtype,
            "kv_cache_bytes": info.kv_cache_bytes,
            "num_kv_blocks": info.num_kv_blocks,
            "num_kv_groups": info.num_kv_groups,
            "num_state_slots": info.num_state_slots,
            "state_slot_bytes": info.state_slot_bytes,
            "host_kv_cache_bytes": info.host_kv_cache_bytes,
            "num_host_kv_blocks": info.num_host_kv_blocks,
            "block_size": info.block_size,
            # Of layers without a window; others keep only what theirs reads.
            "cacheable_tokens": info.num_kv_blocks // info.num_kv_groups * info.block_size,
            "scratch_bytes": info.scratch_bytes,
            "reserved_bytes": info.reserved_bytes,
            "device_free_bytes": info.device_free_bytes,
            "max_num_seqs": info.max_num_seqs,
            "max_num_batched_tokens": info.max_num_batched_tokens,
            "load_seconds": round(info.load_seconds, 3),
        }


def _shapes(info: Any, path: str) -> dict[str, Any]:
    names = (
        "family",
        "dtype",
        "num_parameters",
        "num_active_parameters",
        "num_experts",
        "num_active_experts",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "max_model_len",
        "eos_token_ids",
    )
    return {"path": path, **{name: getattr(info, name) for name in names}}


def _kv_needs(info: Any, dtype: str, context: int) -> dict[str, Any]:
    """What a sequence takes: layers with a window keep about so many of its last tokens."""
    element = 4 if dtype == "float32" else 2
    kept = info.kv_numbers.items()
    needs = {
        "kv_bytes_per_token": element * sum(numbers for _, numbers in kept),
        "kv_bytes_of_full_context": element
        * sum(numbers * min(window or context, context) for window, numbers in kept),
    }
    if info.state_slot_bytes:
        needs["state_slot_bytes"] = info.state_slot_bytes
    return needs


def _shown(name: str, value: Any) -> str:
    if name == "gpus":
        return "; ".join(map(_gpu_text, value)) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int) and "bytes" in name:
        return f"{value:,} ({_size(value)})"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"

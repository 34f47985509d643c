"""Rounds a model's linears to FP8 e4m3 with scales, and writes them as published checkpoints do."""

from __future__ import annotations

from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
LARGEST = 448.0


def block_of(config: dict[str, Any], weight: torch.Tensor) -> tuple[int, int]:
    """Features and inputs that share a scale."""
    size = config["quantization_config"].get("weight_block_size")
    return tuple(size) if size else (1, weight.shape[1])


def split(weight: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and float32 scales. Of what rounded() gives, they are exact: the scales have so few
    bits that the largest number of a block gives its scale again."""
    n, k = weight.shape
    rows, cols = -(-n // block[0]), -(-k // block[1])
    scales = torch.empty(rows, cols)
    codes = torch.empty(n, k, dtype=torch.float8_e4m3fn)
    for row in range(rows):
        for col in range(cols):
            own = (
                slice(row * block[0], (row + 1) * block[0]),
                slice(col * block[1], (col + 1) * block[1]),
            )
            scale = (weight[own].abs().max() / LARGEST).bfloat16().float()
            scales[row, col] = scale
            codes[own] = (weight[own] / scale).to(torch.float8_e4m3fn)
    return codes, scales


def rounded(weight: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """What the codes and scales mean: their products in float32."""
    codes, scales = split(weight, block)
    wide = scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return codes.float() * wide[: weight.shape[0], : weight.shape[1]]


def is_linear(name: str) -> bool:
    return name.endswith("_proj.weight")


def round_model(model: torch.nn.Module, config: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_linear(name):
                parameter.copy_(rounded(parameter.float(), block_of(config, parameter)))


def stored(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Linears as codes beside their scales: float32 blocks, or a bfloat16 one for each feature."""
    suffix = "weight_scale"
    if config["quantization_config"]["quant_method"] == "fp8":
        suffix = "weight_scale_inv"
    out: Tensors = {}
    for name, tensor in tensors.items():
        if not is_linear(name):
            out[name] = tensor
            continue
        codes, scales = split(tensor.float(), block_of(config, tensor))
        out[name] = codes
        kept = scales if suffix == "weight_scale_inv" else scales.bfloat16()
        out[name.removesuffix("weight") + suffix] = kept
    return out

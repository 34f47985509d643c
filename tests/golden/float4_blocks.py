"""gpt-oss's experts as MXFP4: blocks of bytes, and the numbers that transformers runs."""

from __future__ import annotations

from typing import Any

import float4
import numpy as np
import torch

SCALES = (118, 126)  # numbers of 0.3, by the root of their mean square


def is_experts(name: str) -> bool:
    return name.endswith((".experts.gate_up_proj", ".experts.down_proj"))


def round_model(model: torch.nn.Module, config: dict[str, Any]) -> None:
    """Any codes and scales, drawn anew for each drawing of the weights in their place."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not is_experts(name):
                continue
            seed = np.frombuffer(parameter[0, 0].numpy().tobytes(), np.uint32).tolist()
            draws = np.random.default_rng(seed)
            experts, k, n = parameter.shape
            codes = torch.from_numpy(draws.integers(0, 16, (experts * n, k)))
            scales = torch.from_numpy(draws.integers(*SCALES, (experts * n, k // float4.BLOCK)))
            numbers = float4.numbers(codes, scales).reshape(experts, n, k)
            parameter.copy_(numbers.transpose(1, 2))


def stored(tensors: float4.Tensors, config: dict[str, Any]) -> float4.Tensors:
    """Experts as [E, n, k / 32, 16] pairs of codes beside scales [E, n, k / 32]."""
    out: float4.Tensors = {}
    for name, tensor in tensors.items():
        if not is_experts(name):
            out[name] = tensor
            continue
        experts, k, n = tensor.shape
        codes, scales = float4.split(tensor.transpose(1, 2).reshape(experts * n, k))
        pairs = codes[:, 0::2] | codes[:, 1::2] << 4
        shape = (experts, n, k // float4.BLOCK)
        out[name + "_blocks"] = pairs.reshape(*shape, float4.BLOCK // 2).contiguous()
        out[name + "_scales"] = scales.reshape(shape).contiguous()
    return out

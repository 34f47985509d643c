"""Rounds a model's linears to MXFP4, and writes them as compressed-tensors does."""

from __future__ import annotations

from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
BLOCK = 32  # inputs that share a scale
# Of e2m1, by the code's lower three bits; the fourth is the sign.
SIZES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
LARGEST_EXPONENT = 2  # of 4 and 6
BIAS = 127  # of scales


def split(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [n, k] and scales [n, k / 32], both uint8. Of what rounded() gives, they are exact: the
    largest number of a block is 4 or 6 times its scale."""
    n, k = weight.shape
    blocks = weight.double().reshape(n, k // BLOCK, BLOCK)
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1))) - LARGEST_EXPONENT
    in_scales = blocks / torch.exp2(exponents)[..., None]
    sizes = (in_scales.abs()[..., None] - SIZES).abs().argmin(-1)
    codes = sizes + 8 * (in_scales < 0)
    return codes.reshape(n, k).to(torch.uint8), (exponents + BIAS).to(torch.uint8)


def rounded(weight: torch.Tensor) -> torch.Tensor:
    """What the codes and scales mean: their products, which float32 holds exactly."""
    return numbers(*split(weight))


def numbers(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    values = torch.where(codes < 8, 1.0, -1.0) * SIZES[(codes & 7).long()]
    return values * torch.exp2(scales.float() - BIAS).repeat_interleave(BLOCK, 1)


def is_linear(name: str) -> bool:
    return name.endswith("_proj.weight")


def round_model(model: torch.nn.Module, config: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_linear(name):
                parameter.copy_(rounded(parameter.float()))


def stored(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Linears as pairs of codes, that of the lower input in the lower bits, beside their scales."""
    out: Tensors = {}
    for name, tensor in tensors.items():
        if not is_linear(name):
            out[name] = tensor
            continue
        codes, scales = split(tensor)
        out[name + "_packed"] = codes[:, 0::2] | codes[:, 1::2] << 4
        out[name + "_scale"] = scales
    return out

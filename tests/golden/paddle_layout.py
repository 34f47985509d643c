"""Rewrites an ERNIE-4.5 checkpoint from the PyTorch layout into the Paddle layout."""

from __future__ import annotations

import torch

Tensors = dict[str, torch.Tensor]
FUSED = (
    ("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    ("mlp.up_gate_proj", ("mlp.gate_proj", "mlp.up_proj")),
)


def to_paddle(tensors: Tensors) -> Tensors:
    """Fuses q, k, v and gate, up along the out axis, makes matrices [in, out], renames."""
    paddle: Tensors = {}
    for name, tensor in tensors.items():
        target = _fused_name(name)
        if target is None:
            paddle[_rename(name)] = _transposed(name, tensor)
        elif target not in paddle:
            module, _, kind = name.rpartition(".")
            parts = [tensors[f"{part}.{kind}"] for part in _parts(module)]
            paddle[target] = _transposed(name, torch.cat(parts, dim=0))
    return paddle


def _parts(module: str) -> list[str]:
    for _, names in FUSED:
        for part in names:
            if module.endswith(part):
                stem = module.removesuffix(part)
                return [stem + sibling for sibling in names]
    raise KeyError(module)


def _fused_name(name: str) -> str | None:
    module, _, kind = name.rpartition(".")
    for fused, names in FUSED:
        for part in names:
            if module.endswith(part):
                return _rename(f"{module.removesuffix(part)}{fused}.{kind}")
    return None


def _rename(name: str) -> str:
    return "ernie." + name.removeprefix("model.") if name.startswith("model.") else name


def _transposed(name: str, tensor: torch.Tensor) -> torch.Tensor:
    is_linear = name.endswith("proj.weight") or name == "lm_head.weight"
    return tensor.T.contiguous() if is_linear else tensor

"""Rewrites checkpoints from the PyTorch layout into others that are published."""

from __future__ import annotations

import re
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
FUSED = (
    (".qkv_proj", (".q_proj", ".k_proj", ".v_proj")),
    (".up_gate_proj", (".gate_proj", ".up_proj")),
)
IN_OUT = re.compile(r"(proj|proj\.0|\.mlp\.gate|^lm_head)\.weight$")
EXPERT = re.compile(r"(.*\.experts)\.0\.(gate|down)_proj\.weight")


def to_paddle(tensors: Tensors) -> Tensors:
    """ERNIE: fuses q, k, v and gate, up along the out axis, makes matrices [in, out], renames."""
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


def to_ernie_vl(tensors: Tensors, paddle: bool) -> Tensors:
    """ERNIE-4.5-VL's published names from those that transformers saves. Routers are [H, E] in
    both layouts; Paddle's makes all other matrices [in, out] but the embedding."""
    out: Tensors = {}
    decoder: Tensors = {}
    for name, tensor in tensors.items():
        if ".vision_model." in name or ".resampler_model." in name:
            own = name.removeprefix("model.") if ".vision_model." in name else name
            matrix = paddle and tensor.dim() == 2
            out[_rename(own) if paddle else own] = tensor.T.contiguous() if matrix else tensor
        elif paddle and ".mlp.gate." in name:
            out[_rename(name)] = tensor
        else:
            decoder[name] = tensor
    return {**out, **(to_paddle(decoder) if paddle else decoder)}


def to_nested_siglip(tensors: Tensors) -> Tensors:
    """Gemma 3's published names: its tower is a module within one."""
    return {
        name.replace("vision_tower.", "vision_tower.vision_model.", 1): tensor
        for name, tensor in tensors.items()
    }


def to_wrapped(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """A text model's in the file of a model that sees pictures: experts fused, but not those of the
    block that guesses tokens. Qwen's has its whole tower, all zeros; Gemma's some of the tensors
    that a text model has no place for."""
    out = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in to_fused_experts(tensors).items()
    }
    more = _more_of_gemma4(config) if config["model_type"] == "gemma4" else _qwen_tower(config)
    return {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in more.items()} | out


def _qwen_tower(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of one block."""
    vision, hidden = config["vision_config"], config["text_config"]["hidden_size"]
    width, wide, side = (vision[k] for k in ("hidden_size", "intermediate_size", "patch_size"))
    joined = 4 * width
    linears = {
        "blocks.0.attn.qkv": (3 * width, width),
        "blocks.0.attn.proj": (width, width),
        "blocks.0.mlp.linear_fc1": (wide, width),
        "blocks.0.mlp.linear_fc2": (width, wide),
        "merger.linear_fc1": (joined, joined),
        "merger.linear_fc2": (hidden, joined),
        "patch_embed.proj": (width, 3, 2, side, side),
    }
    norms = ("blocks.0.norm1", "blocks.0.norm2", "merger.norm")
    modules: dict[str, tuple[int, ...]] = {**linears, **dict.fromkeys(norms, (width,))}
    out = {f"model.visual.{name}.weight": shape for name, shape in modules.items()}
    out |= {f"model.visual.{name}.bias": shape[:1] for name, shape in modules.items()}
    return out | {"model.visual.pos_embed.weight": (vision["num_position_embeddings"], width)}


def _more_of_gemma4(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Also keys and values of layers that read those of others."""
    text = config["text_config"]
    hidden, seen = text["hidden_size"], config["vision_config"]["hidden_size"]
    out: dict[str, tuple[int, ...]] = {
        "model.vision_tower.patch_embedder.input_proj.weight": (seen, 12),
        "model.embed_vision.embedding_projection.weight": (hidden, seen),
        "model.audio_tower.output_proj.bias": (hidden,),
        "model.embed_audio.embedding_projection.weight": (hidden, hidden),
    }
    layers = text["num_hidden_layers"]
    for layer in range(layers - text["num_kv_shared_layers"], layers):
        slides = text["layer_types"][layer] == "sliding_attention"
        head_dim = text["head_dim" if slides else "global_head_dim"]
        stem = f"model.language_model.layers.{layer}.self_attn"
        rows = text["num_key_value_heads"] * head_dim
        out |= {f"{stem}.{part}_proj.weight": (rows, hidden) for part in "kv"}
        out[f"{stem}.k_norm.weight"] = (head_dim,)
    return out


def to_fused_experts(tensors: Tensors) -> Tensors:
    """All experts of a layer in two tensors: gate_up_proj [E, 2I, H] and down_proj [E, H, I]."""
    apart = ("mtp.",)
    fused = {
        name: tensor
        for name, tensor in tensors.items()
        if ".experts." not in name or name.startswith(apart)
    }
    for name in tensors:
        match = EXPERT.fullmatch(name)
        if match is None or name.startswith(apart):
            continue
        stem, kind = match.groups()
        count = sum(other.startswith(f"{stem}.") for other in tensors) // 3
        parts = ("gate", "up") if kind == "gate" else ("down",)
        matrices = [
            torch.cat([tensors[f"{stem}.{expert}.{part}_proj.weight"] for part in parts])
            for expert in range(count)
        ]
        fused[f"{stem}.{'gate_up' if kind == 'gate' else 'down'}_proj"] = torch.stack(matrices)
    return fused


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
    return tensor.T.contiguous() if IN_OUT.search(name) else tensor

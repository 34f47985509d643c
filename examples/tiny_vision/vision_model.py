"""ERNIE-4.5-VL in plain PyTorch, with the parameter names of a published checkpoint.

A tower looks at each frame, a resampler makes one row of each block of 2 x 2 patches (in a clip: of
two frames), and a decoder reads rows and text together. In its sparse layers, rows and vision
tokens have experts of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import beside  # noqa: F401 (finds the tiny model's modules)
from model import Attention, Mlp, Shape
from pictures import PATCH, patches

_TOWER_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class VisionShape:
    """The sizes of the tiny vision model. Experts: of text and of vision, in this order."""

    text: Shape = field(
        default_factory=lambda: Shape(
            vocab_size=704,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=5,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            rope_theta=10_000.0,
        )
    )
    experts: int = 4  # of each group
    chosen: int = 2
    widths: tuple[int, int] = (64, 32)
    shared: int = 2  # experts of the text's width that all tokens use
    first_sparse: int = 1
    time_pairs: int = 4  # of the pairs that a head's rotation turns
    tower_hidden: int = 96
    tower_depth: int = 4
    tower_heads: int = 3
    tower_ratio: int = 4


def tower_angles(height: int, width: int, head: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [patches, head] of a frame of so many patches: half of the angles from the
    row of a patch, half from its column."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")

    def in_blocks(grid: Tensor) -> Tensor:
        return grid.view(height // 2, 2, width // 2, 2).transpose(1, 2).flatten().float()

    frequencies = 10_000.0 ** -(torch.arange(0, head // 2, 2).float() / (head // 2))
    angles = torch.cat([torch.outer(in_blocks(grid), frequencies) for grid in (y, x)], dim=-1)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (i, i + head / 2) of x [frames, heads, patches, head]."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


class TowerAttention(nn.Module):
    """Every patch of a frame sees all of the frame."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        frames, length, hidden = x.shape
        parts = self.qkv(x).view(frames, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = _turned(parts[0], cos, sin), _turned(parts[1], cos, sin)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        mixed = scores.softmax(-1).to(q.dtype) @ parts[2]
        return self.proj(mixed.transpose(1, 2).reshape(frames, length, hidden))


class TowerMlp(nn.Module):
    """Two layers with the quick GELU between."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(hidden, inner)
        self.fc2 = nn.Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.fc1(x)
        return self.fc2(inner * torch.sigmoid(1.702 * inner))


class TowerBlock(nn.Module):
    """One layer of the tower."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        hidden = shape.tower_hidden
        self.norm1 = nn.LayerNorm(hidden, eps=_TOWER_EPS)
        self.norm2 = nn.LayerNorm(hidden, eps=_TOWER_EPS)
        self.attn = TowerAttention(hidden, shape.tower_heads)
        self.mlp = TowerMlp(hidden, shape.tower_ratio * hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Tower(nn.Module):
    """uint8 frames [frames, height, width, 3] to [frames, patches, tower_hidden]."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.head = shape.tower_hidden // shape.tower_heads
        self.patch_embed = nn.ModuleDict(
            {"proj": nn.Linear(3 * PATCH * PATCH, shape.tower_hidden, bias=False)}
        )
        self.blocks = nn.ModuleList(TowerBlock(shape) for _ in range(shape.tower_depth))
        self.ln = nn.LayerNorm(shape.tower_hidden, eps=_TOWER_EPS)

    def forward(self, pixels: Tensor) -> Tensor:
        cos, sin = tower_angles(pixels.shape[1] // PATCH, pixels.shape[2] // PATCH, self.head)
        x = self.patch_embed["proj"](torch.from_numpy(patches(pixels.numpy())))
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.ln(x)


def _merging(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, outputs),
        nn.GELU(),
        nn.Linear(outputs, outputs),
        nn.LayerNorm(outputs, eps=_TOWER_EPS),
    )


class Resampler(nn.Module):
    """[items, frames, patches, tower_hidden] to rows [items, rows, hidden_size]; frames are 1 or
    even."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        block = 4 * shape.tower_hidden
        self.spatial_linear = _merging(block, block)
        self.temporal_linear = _merging(2 * block, block)
        self.mlp = nn.Linear(block, shape.text.hidden_size)
        self.after_norm = nn.RMSNorm(shape.text.hidden_size, eps=shape.text.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        items, frames, length, hidden = x.shape
        x = self.spatial_linear(x.reshape(items, frames, length // 4, 4 * hidden))
        first, second = (x, x) if frames == 1 else (x[:, 0::2], x[:, 1::2])
        x = self.temporal_linear(torch.cat([first, second], dim=-1))
        return self.after_norm(self.mlp(x)).flatten(1, 2)


def decoder_angles(shape: VisionShape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [batch, 1, length, head_dim / 2] of positions [3, batch, length] over time,
    height and width. The last pairs turn with time, the others with height and width in turn."""
    head = shape.text.head_dim
    exponents = torch.arange(0, head, 2, dtype=torch.float32) / head
    frequencies = shape.text.rope_theta**-exponents
    axes = [1 + i % 2 for i in range(head // 2 - shape.time_pairs)] + [0] * shape.time_pairs
    angles = (positions[axes].permute(1, 2, 0).float() * frequencies)[:, None]
    return angles.cos(), angles.sin()


class Gate(nn.Module):
    """The routers of both groups, as published: [hidden_size, experts]."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        size = (shape.text.hidden_size, shape.experts)
        self.weight = nn.Parameter(torch.empty(size))
        self.weight_1 = nn.Parameter(torch.empty(size))


class Statics(nn.Module):
    """What is added to the scores of the experts, of text and of vision, to choose among them."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.register_buffer("e_score_correction_bias", torch.zeros(2, shape.experts))


class TwoGroups(nn.Module):
    """Experts of text, experts of vision, and one that all tokens use.

    load: how often each expert was chosen since the last `rebalance`.
    """

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.shape = shape
        self.gate = Gate(shape)
        self.moe_statics = Statics(shape)
        self.experts = nn.ModuleList(
            Mlp(replace(shape.text, intermediate_size=width))
            for width in shape.widths
            for _ in range(shape.experts)
        )
        shared = replace(shape.text, intermediate_size=shape.shared * shape.widths[0])
        self.shared_experts = Mlp(shared)
        self.load = torch.zeros(2, shape.experts)

    def forward(self, x: Tensor, groups: tuple[Tensor, Tensor]) -> Tensor:
        """groups: which rows of x [rows, hidden_size] are text, and which are vision."""
        mixed = self.shared_experts(x)
        for group, rows in enumerate(groups):
            if len(rows):
                part = x[rows]
                own = self._mixed(group, part, self._weights(group, part))
                mixed = mixed.index_add(0, rows, own.to(mixed.dtype))
        return mixed

    def _weights(self, group: int, x: Tensor) -> Tensor:
        """[rows, experts]: 0 for those that aren't chosen; the others add up to 1."""
        with torch.autocast("cpu", enabled=False):
            router = self.gate.weight_1 if group else self.gate.weight
            scores = (x.float() @ router).softmax(-1)
            steered = scores + self.moe_statics.e_score_correction_bias[group]
            best = steered.topk(self.shape.chosen).indices
            weights = torch.zeros_like(scores).scatter(1, best, scores.gather(1, best))
            if self.training:
                self.load[group] += torch.bincount(best.flatten(), minlength=self.shape.experts)
            return weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)

    def _mixed(self, group: int, x: Tensor, weights: Tensor) -> Tensor:
        """All experts of the group as one wide layer: those with weight 0 add nothing."""
        count, width = self.shape.experts, self.shape.widths[group]
        own = self.experts[group * count : (group + 1) * count]
        gate = F.linear(x, torch.cat([expert.gate_proj.weight for expert in own]))
        up = F.linear(x, torch.cat([expert.up_proj.weight for expert in own]))
        inner = (F.silu(gate) * up).view(-1, count, width) * weights.to(gate.dtype)[..., None]
        return F.linear(inner.flatten(1), torch.cat([expert.down_proj.weight for expert in own], 1))

    @torch.no_grad()
    def rebalance(self, rate: float) -> None:
        """Steers towards experts that were chosen less than the others."""
        less = self.load.mean(-1, keepdim=True) - self.load
        self.moe_statics.e_score_correction_bias += rate * less.sign()
        self.load.zero_()


class Block(nn.Module):
    """One decoder layer, dense or sparse."""

    def __init__(self, shape: VisionShape, index: int) -> None:
        super().__init__()
        text = shape.text
        self.input_layernorm = nn.RMSNorm(text.hidden_size, eps=text.rms_norm_eps)
        self.self_attn = Attention(text)
        self.post_attention_layernorm = nn.RMSNorm(text.hidden_size, eps=text.rms_norm_eps)
        self.mlp = TwoGroups(shape) if index >= shape.first_sparse else Mlp(text)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, future: Tensor, groups: tuple[Tensor, Tensor]
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, future)
        normed = self.post_attention_layernorm(x)
        if isinstance(self.mlp, TwoGroups):
            return x + self.mlp(normed.flatten(0, 1), groups).view_as(x)
        return x + self.mlp(normed)


class Decoder(nn.Module):
    """The language model and, as the published names have it, the resampler."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        text = shape.text
        self.embed_tokens = nn.Embedding(text.vocab_size, text.hidden_size)
        self.layers = nn.ModuleList(Block(shape, i) for i in range(text.num_hidden_layers))
        self.norm = nn.RMSNorm(text.hidden_size, eps=text.rms_norm_eps)
        self.resampler_model = Resampler(shape)


class VisionModel(nn.Module):
    """The whole model."""

    def __init__(self, shape: VisionShape, patch_id: int) -> None:
        """patch_id: the token of a row; it and all above it are the vision experts'."""
        super().__init__()
        self.shape = shape
        self.patch_id = patch_id
        self.vision_model = Tower(shape)
        self.model = Decoder(shape)
        out = ("o_proj.weight", "down_proj.weight", "proj.weight", "fc2.weight")
        depth = (2 * shape.text.num_hidden_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                fan = parameter.shape[0 if "gate.weight" in name else 1]
                std = 0.8 * fan**-0.5 * (depth if name.endswith(out) else 1.0)
                nn.init.normal_(parameter, std=0.02 if "embed_tokens" in name else std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.constant_(self.model.resampler_model.after_norm.weight, 0.2)

    def rows(self, pixels: Tensor) -> Tensor:
        """uint8 [items, frames, height, width, 3] to [items, rows, hidden_size]."""
        frames = self.vision_model(pixels.flatten(0, 1))
        return self.model.resampler_model(frames.unflatten(0, pixels.shape[:2]))

    def forward(self, ids: Tensor, positions: Tensor, rows: Tensor | None) -> Tensor:
        """Hidden states [batch, length, hidden_size]. ids: [batch, length]. positions: [3, batch,
        length]. rows: of all items, in the order of ids."""
        x = self.model.embed_tokens(ids)
        if rows is not None:
            x = x.masked_scatter((ids == self.patch_id)[..., None], rows.to(x.dtype))
        cos, sin = decoder_angles(self.shape, positions)
        future = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1)
        is_vision = (ids >= self.patch_id).flatten()
        groups = (~is_vision).nonzero()[:, 0], is_vision.nonzero()[:, 0]
        for layer in self.model.layers:
            x = layer(x, cos, sin, future, groups)
        return self.model.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every token, [..., vocab_size], from hidden states."""
        return hidden @ self.model.embed_tokens.weight.T


def sparse_layers(model: VisionModel) -> list[TwoGroups]:
    """The sparse layers' experts."""
    return [module for module in model.modules() if isinstance(module, TwoGroups)]

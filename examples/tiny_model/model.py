"""The ERNIE-4.5 dense decoder in plain PyTorch, with the parameter names of a published checkpoint.

Pre-norm blocks of grouped-query attention and SwiGLU, no biases, tied embeddings; the rotary
embedding turns neighbouring pairs (2i, 2i + 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the tiny model."""

    vocab_size: int
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 500_000.0
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 4096


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def rotary_angles(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the positions below `length`, each [length, head_dim / 2]."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.outer(torch.arange(length).float(), shape.rope_theta**-exponents)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (2i, 2i + 1) of x [batch, heads, length, head_dim]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return turned.flatten(-2).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        queries = shape.num_attention_heads * shape.head_dim
        keys = shape.num_key_value_heads * shape.head_dim
        self.q_proj = _linear(shape.hidden_size, queries)
        self.k_proj = _linear(shape.hidden_size, keys)
        self.v_proj = _linear(shape.hidden_size, keys)
        self.o_proj = _linear(queries, shape.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, future: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, length, -1, self.shape.head_dim).transpose(1, 2)

        q = rotate(heads(self.q_proj(x)), cos, sin)
        k = rotate(heads(self.k_proj(x)), cos, sin)
        v = heads(self.v_proj(x))
        group = self.shape.num_attention_heads // self.shape.num_key_value_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = (q * self.shape.head_dim**-0.5) @ k.transpose(-1, -2) + future
        mixed = scores.softmax(-1).to(v.dtype) @ v
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = _linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, future: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, future)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Token ids [batch, length] to hidden states [batch, length, hidden_size]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                depth = (2 * shape.num_hidden_layers) ** -0.5 if out else 1.0
                nn.init.normal_(parameter, std=0.02 if "embed" in name else 0.06 * depth)

    def forward(self, ids: Tensor) -> Tensor:
        cos, sin = rotary_angles(self.shape, ids.shape[1])
        # [length, length]: minus infinity where a place would see a later one. Written out, since
        # the fused attention of the CPU is three times slower on sequences this short.
        future = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1)
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin, future)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every token, [..., vocab_size], from hidden states."""
        return F.linear(hidden, self.embed_tokens.weight)

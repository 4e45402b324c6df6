"""A decoder in the plain style of torchtitan's Llama: what a stack with its own model code runs.

Shapes follow the published architecture (RMSNorm, rotary positions, grouped heads, gated MLP); the operations are those
that decide memory: the norm either as one operation or composed, SDPA on grouped heads, no fused MLP.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's sizes: channels, heads, layers, vocabulary."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool = False
    fused_norm: bool = True


class ComposedNorm(nn.Module):
    """RMSNorm of several operations in fp32, as model code wrote it before torch had one."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return scaled.to(x.dtype) * self.weight


def norm(shape: Shape) -> nn.Module:
    """The norm of that shape."""
    return nn.RMSNorm(shape.hidden, eps=1e-5) if shape.fused_norm else ComposedNorm(shape.hidden)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: each pair of channels (one of either half) turned by its angle."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.head_dim, self.grouped = shape.head_dim, shape.kv_heads != shape.heads
        self.wq = nn.Linear(shape.hidden, shape.heads * shape.head_dim, bias=False)
        self.wk = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.wv = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.wo = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            w(x).view(batch, length, -1, self.head_dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.grouped)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """Gated MLP."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.w1 = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.w2 = nn.Linear(shape.ffn, shape.hidden, bias=False)
        self.w3 = nn.Linear(shape.hidden, shape.ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """One layer: attention and MLP, each behind a norm and added to the residual."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.attention, self.feed_forward = Attention(shape), FeedForward(shape)
        self.attention_norm, self.ffn_norm = norm(shape), norm(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Decoder(nn.Module):
    """Embedding, layers, norm and head. `head_chunks` > 1 gives the logits in that many pieces of the sequence."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape, self.head_chunks = shape, 1
        self.tok_embeddings = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = norm(shape)
        self.output = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied:
            self.output.weight = self.tok_embeddings.weight

    def hidden(self, ids: Tensor) -> Tensor:
        """The last hidden state."""
        x = self.tok_embeddings(ids)
        cos, sin = angles(ids.shape[1], self.shape.head_dim, x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor | list[Tensor]:
        x = self.hidden(ids)
        if self.head_chunks > 1:
            return [self.output(piece) for piece in x.chunk(self.head_chunks, dim=1)]
        return self.output(x)


def angles(length: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables, length x width."""
    positions = torch.arange(length, dtype=torch.float32)[:, None]
    each = positions * (10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float32) / width))[None]
    both = torch.cat((each, each), -1)
    return both.cos().to(dtype), both.sin().to(dtype)

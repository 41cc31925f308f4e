"""A small transformer with experts, and ways to make its recomputations differ, for tests of watch()."""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, EXPERTS = 16, 4


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.noise, self.calls = 0.0, 0

    def forward(self, x):
        scores = self.gate(x)
        if self.noise:
            # As from a kernel that is not deterministic: other noise whenever it runs.
            self.calls += 1
            scores = scores + self.noise * self.calls * torch.arange(EXPERTS)
        return torch.topk(scores.softmax(-1), 2)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x):
        # Every expert runs on all rows, so that shapes stay what they are when rows go elsewhere.
        weights, chosen = self.router(x)
        share = torch.zeros(len(x), EXPERTS, dtype=weights.dtype).scatter(1, chosen, weights)
        return sum(share[:, e, None] * expert(x) for e, expert in enumerate(self.experts))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.moe = Experts()

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.dropout(self.attention(h, h, h, need_weights=False)[0])
        return x + self.dropout(self.moe(self.norm2(x).flatten(0, 1)).view_as(x))


class Transformer(nn.Module):
    """Of four layers, each checkpointed with `options`; not, where there are none."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))
        self.head = nn.Linear(WIDTH, 1)
        self.options = options

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, **self.options) if self.options else layer(x)
        return self.head(x)


def batch(size: int = 2) -> torch.Tensor:
    return torch.randn(size, 5, WIDTH, requires_grad=True)


def train(model: nn.Module, steps: int, before_backward: Any = None, **autocast: Any) -> None:
    """Steps of SGD on random batches, under autocast where options of it are given."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16, **(autocast or {"enabled": False})):
            loss = model(batch()).square().mean()
        if before_backward is not None:
            before_backward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

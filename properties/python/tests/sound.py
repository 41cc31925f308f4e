"""Modules that compute the same under checkpointing, though a naive look accuses them: what test_causes.py judges."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SOUND: list[Callable[[], Any]] = []
"""What makes each module."""
INPUTS: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {}
"""By the name of what makes a module, arguments other than one tensor of 3 x 4."""
ONLY_NON_REENTRANT: set[str] = set()
"""Those that are sound under use_reentrant=False alone."""


def sound(make: Any) -> Any:
    SOUND.append(make)
    return make


def sound_without_reentrant(make: Any) -> Any:
    ONLY_NON_REENTRANT.add(make.__name__)
    return sound(make)


def takes(name: str, *args: Any, **kwargs: Any) -> None:
    INPUTS[name] = lambda: (args, kwargs)


def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def tokens() -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


class Inner(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)


@sound
class Unused(Inner):
    """An input of a reentrant checkpoint that gets no gradient is given None, not a tensor."""

    def forward(self, x, unused):
        return self.inner(x)


takes("Unused", torch.ones(3, 4), torch.ones(3, 4))


@sound
class Table(nn.Module):
    """Its weight and its input get one tensor as their gradients, as both are views in a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return (self.table[None] + x.reshape(1, 3, 4)).sin()


@sound
class Rotary(Inner):
    """Keeps its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None or self.table.shape != x.shape:
            self.table = torch.arange(x.numel()).view(x.shape).float().cos()
        return self.inner(x) * self.table


@sound
class KeepsDetached(Inner):
    def forward(self, x):
        y = self.inner(x)
        self.last = y.detach()
        return y.tanh()


@sound
class FrozenNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.norm.eval()

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


takes("FrozenNorm", images())


@sound
def in_evaluation() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()


@sound
def dropouts() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Dropout2d(0.3), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2), nn.Dropout(0.1)
    )


takes("dropouts", images())


@sound
def group_norm() -> Any:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Upsample(scale_factor=2))


takes("group_norm", images())


@sound
def old_weight_norm() -> Any:
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)), nn.Tanh())


@sound
def weight_norm() -> Any:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Tanh())


@sound
def orthogonal() -> Any:
    return nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))


@sound
def function_of_a_module() -> Any:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    return lambda x: layer(x) + x


@sound
def bound_method() -> Any:
    return nn.Linear(4, 4).forward


@sound
def a_partial() -> Any:
    return functools.partial(F.linear, weight=nn.Parameter(torch.randn(4, 4)))


@sound
class Decoder(Inner):
    """Keywords alone."""

    def __init__(self) -> None:
        super().__init__(8)
        self.attend = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

    def forward(self, *, hidden_states, attention_mask=None, scale=1.0, use_cache=False):
        y, _ = self.attend(hidden_states, hidden_states, hidden_states, attn_mask=attention_mask, need_weights=False)
        return self.inner(hidden_states + scale * y)


ONLY_NON_REENTRANT.add("Decoder")
takes("Decoder", hidden_states=tokens(), attention_mask=torch.ones(5, 5).tril().log(), scale=0.5)


@sound
class LayerDrop(Inner):
    def forward(self, x):
        return x + self.inner(x) if torch.rand(()) < 0.7 else x * 1.0


@sound
class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(8, 8, batch_first=True, bidirectional=True), nn.GRU(16, 4, 2, dropout=0.2)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])


takes("Recurrent", tokens())


@sound
class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.2)


takes("Attention", tokens(), torch.ones(5, 5, dtype=torch.bool).tril())


@sound
class InPlaceWithin(Inner):
    def forward(self, x):
        y = self.inner(x)
        y = y.mul(2).relu_()
        return (y + 1).mul_(2)


@sound
class ReturnsViews(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y[:, :2], y.t()


@sound
class ReturnsManyKinds(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y, None, y.argmax(-1), 3


@sound
class Complex(Inner):
    def forward(self, x):
        return torch.fft.rfft(self.inner(x)).abs()


@sound
def doubles() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.GELU()).double()


takes("doubles", torch.randn(3, 4, dtype=torch.float64))


@sound
def bfloats() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.GELU()).bfloat16()


takes("bfloats", torch.randn(3, 4, dtype=torch.bfloat16))


@sound
def nothing_comes() -> Any:
    return nn.Linear(4, 4)


takes("nothing_comes", torch.randn(0, 4))


@sound
class Tied(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 4)
        self.other.weight = self.inner.weight

    def forward(self, x):
        return self.other(self.inner(x).tanh())


@sound_without_reentrant
def embedding() -> Any:
    return nn.Sequential(nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 8))


takes("embedding", torch.tensor([[1, 2, 0], [3, 8, 0]]))


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


@sound
class OwnFunction(Inner):
    def forward(self, x):
        return _Cube.apply(self.inner(x))


@sound
class LambdaInside(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.activation = lambda x: x * torch.sigmoid(1.7 * x)

    def forward(self, x):
        return self.activation(self.inner(x))


@sound
def harmless_hook() -> Any:
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(lambda module, args, output: output.clamp(-1, 1))
    return layer


@sound
class Lora(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.inner.requires_grad_(False)
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)

    def forward(self, x):
        return self.inner(x) + self.up(self.down(x))


@sound
class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights, chosen = self.route(flat).softmax(-1).topk(2)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows, which = (chosen == i).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(flat[rows]) * weights[rows, which, None])
        return out.view_as(x)


takes("Experts", tokens())


@sound
class ReturnsLoss(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y, y.square().mean()


@sound
class SeedsItsGenerator(nn.Module):
    def forward(self, x):
        generator = torch.Generator().manual_seed(3)
        return (x * torch.rand(x.shape, generator=generator)).tanh()


@sound
class ManyOperators(Inner):
    def forward(self, x):
        y = torch.einsum("bi,ci->bc", self.inner(x), self.inner.weight)
        y = y.cumsum(-1).sort(-1).values
        index = torch.tensor([[0, 1, 1, 2]] * 3)
        y = y.gather(1, index).scatter_add(1, index, x)
        return y.index_select(1, torch.tensor([3, 0, 1])).logsumexp(-1)


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()


@sound_without_reentrant
class ReturnsDataclass(Inner):
    def forward(self, x):
        y = self.inner(x)
        return Output(y.tanh(), (y, x))


@sound_without_reentrant
class TakesStructures(Inner):
    def forward(self, batch, lengths=None, flags=(True, None)):
        y = self.inner(batch["x"]) + batch["more"][0].logits
        return {"y": y * (lengths or 1) if flags[0] else y}


takes("TakesStructures", {"x": torch.randn(3, 4), "more": [Output(torch.randn(3, 4))]}, lengths=2)


@sound
class ChecksItself(nn.Module):
    """Checkpoints inside, and rightly."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


@sound
class ChecksItselfReentrant(ChecksItself):
    def forward(self, x):
        x = x if x.requires_grad else x.detach().requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x


@sound
def encoder() -> Any:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)


takes("encoder", tokens())


@sound
class Sinusoids(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(4.0).mul(math.pi).sin())

    def forward(self, x):
        return self.inner(x + self.table)


@sound
def pixels() -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.PixelShuffle(2), nn.AdaptiveAvgPool2d(4), nn.Flatten())


takes("pixels", images())


@sound
class KeepsConstants(Inner):
    scale, names = 2.0, ("a", "b")

    def forward(self, x):
        self.shape = tuple(x.shape)
        return self.inner(x) * self.scale

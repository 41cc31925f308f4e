"""Layers that draw from a generator of their own, beside PyTorch's default one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy
import torch
from torch import Generator, Tensor

from rematch.case import Layer


def _dropout(layer: Layer, x: Tensor, generator: Generator) -> Tensor:
    keep = torch.full_like(x, 1 - layer.p)
    return x * torch.bernoulli(keep, generator=generator) / (1 - layer.p)


def _noise(layer: Layer, x: Tensor, generator: Generator) -> Tensor:
    return x + layer.p * torch.randn(x.shape, dtype=x.dtype, generator=generator)


def _rrelu(layer: Layer, x: Tensor, generator: Generator) -> Tensor:
    noise = torch.empty_like(x)
    return torch.ops.aten.rrelu_with_noise(x, noise, 1 / 8, 1 / 3, True, generator)


DRAWS: dict[str, Callable[[Layer, Tensor, Generator], Tensor]] = {
    "dropout": _dropout,
    "gaussian_noise": _noise,
    "rrelu": _rrelu,
}


def generators_of(layers: Sequence[Layer], seed: int) -> list[Generator]:
    """The default generator and one for every further stream, all of which begin at `seed`, as do
    those of Python and NumPy."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    further = max((layer.stream for layer in layers), default=0)
    generators = [torch.default_generator, *(Generator() for _ in range(further))]
    for generator in generators:
        generator.manual_seed(seed)
    return generators


def draws_elsewhere(layer: Layer, train: bool) -> bool:
    """Whether the layer, as it is run, draws from another generator than the default one."""
    return (
        layer.kind in DRAWS
        and layer.stream > 0
        and train
        and (layer.kind == "rrelu" or layer.p > 0)
    )

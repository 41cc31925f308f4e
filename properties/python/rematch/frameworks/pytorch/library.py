"""The layers that databases.py finds in this PyTorch, kept in a file, as finding them takes a minute."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.subjects.library import SHAPES, kept

SETUP = """\
import math


def floats(value):
    if isinstance(value, torch.Tensor):
        value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        return [value.flatten()] if value.is_floating_point() else []
    return [part for v in value for part in floats(v)] if isinstance(value, (tuple, list)) else []


def fit(value, *shape):  # its numbers in that shape: again and again, or means of them
    numbers, size = torch.cat(floats(value)), math.prod(shape)
    if len(numbers) <= size:
        return numbers.repeat(-(-size // len(numbers)))[:size].reshape(shape)
    return F.pad(numbers, (0, -len(numbers) % size)).reshape(-1, size).mean(0).reshape(shape)


def grid(x, *shape):
    return torch.linspace(0.1, 0.9, math.prod(shape), dtype=x.dtype).reshape(shape)
"""
_DATABASES = Path(__file__).with_name("databases.py")


def found() -> dict[str, Any]:
    """The layers, and those "not tried" with the reason."""
    return kept(f"torch-{torch.__version__}", (str(_DATABASES),), "rematch.frameworks.pytorch.databases")


@lru_cache(1)
def library() -> tuple[CustomLayer, ...]:
    return tuple(
        CustomLayer(name, SHAPES, make, call, setup=SETUP, traits=traits)
        for name, make, call, traits in found()["layers"]
    )

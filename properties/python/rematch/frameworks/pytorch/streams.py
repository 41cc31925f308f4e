"""Generators that the layers of a case draw from."""

import random
from collections.abc import Sequence

import numpy
import torch
from torch import Generator

from rematch.subjects.case import Layer


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

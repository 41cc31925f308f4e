"""The default generators of PyTorch, NumPy and Python."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematch.safe.state import GENERATOR, Leaf


def seed_all(seed: int) -> None:
    """Seeds the default generators of PyTorch, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def random_states() -> dict[str, Any]:
    """Returns the states of all default generators."""
    states = {"PyTorch": torch.get_rng_state(), "NumPy": np.random.get_state(), "Python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["CUDA"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: Mapping[str, Any]) -> None:
    """Puts back what random_states() returned."""
    torch.set_rng_state(states["PyTorch"])
    np.random.set_state(states["NumPy"])
    random.setstate(states["Python"])
    if "CUDA" in states:
        torch.cuda.set_rng_state_all(states["CUDA"])


def random_leaves(of_tensor: Callable[[Tensor], Any]) -> dict[str, Leaf]:
    """Returns the states of the default generators as leaves; `of_tensor` says what is kept of a tensor."""
    states = random_states()
    found = {
        "the random state of PyTorch": Leaf(GENERATOR, of_tensor(states["PyTorch"])),
        "the random state of numpy": Leaf(GENERATOR, repr(states["NumPy"][1:3])),
        "the random state of random": Leaf(GENERATOR, states["Python"]),
    }
    for index, state in enumerate(states.get("CUDA", ())):
        found[f"the random state of cuda:{index}"] = Leaf(GENERATOR, of_tensor(state))
    return found

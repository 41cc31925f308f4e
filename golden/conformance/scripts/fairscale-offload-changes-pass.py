# Something changes before the recomputation, and no error is raised.
# Found at trial of the checkpointed run, failure op_exchanged: expected an error, got none
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch

from functools import cache
from typing import Any

import torch.nn as nn
from fairscale.nn import checkpoint_wrapper
from torch import Tensor


class Holder(nn.Module):
    def __init__(self, held: list[Any]) -> None:
        super().__init__()
        weights = [part for part in held if isinstance(part, Tensor)]
        self.weights = nn.ParameterList(nn.Parameter(w.detach(), w.requires_grad) for w in weights)
        self.parts = nn.ModuleList(part for part in held if isinstance(part, nn.Module))

    def forward(self, function: Any, *inputs: Tensor) -> Any:
        return function(*inputs)


def held_by(function):
    parts = [cell.cell_contents for cell in function.__closure__ or ()]
    within = [held_by(part) for part in parts if hasattr(part, "__closure__")]
    return sum(within, [part for part in parts if isinstance(part, (Tensor, nn.Module))])


@cache
def wrapped(function):
    return checkpoint_wrapper(Holder(held_by(function)), True)


def checkpoint(function, *inputs, use_reentrant):
    return wrapped(function)(function, *inputs)


def run(checkpointed, change):
    x = torch.tensor([[-0.11]], requires_grad=True)
    entered = 0

    def block(x):
        nonlocal entered
        entered += 1
        return torch.tanh(x) if change and entered > 1 else torch.relu(x)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    loss = y.sum()
    loss.backward()
    return {"x.grad": x.grad}


def outcome(checkpointed):
    try:
        return run(checkpointed, change=True)
    except RuntimeError as error:
        return f"RuntimeError: {error}"


right, changed = run(checkpointed=True, change=False), outcome(checkpointed=True)
print("nothing changed:       ", right)
print("changed, plain:        ", outcome(checkpointed=False))
print("changed, checkpointed: ", changed)
if isinstance(changed, str):
    print("same: an error is raised")
    sys.exit(0)
wrong = [name for name in right if not torch.equal(right[name], changed[name])]
print("DIFFERENT: no error is raised" + "".join(f", {name} is wrong" for name in wrong))
sys.exit(1)

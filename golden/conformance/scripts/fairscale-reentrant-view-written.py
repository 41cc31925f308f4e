# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: Output 0 of CheckpointFunction
# is a view and is being modified inplace
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F

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
    return checkpoint_wrapper(Holder(held_by(function)), False)


def checkpoint(function, *inputs, use_reentrant):
    return wrapped(function)(function, *inputs)


def run(checkpointed):
    x = torch.tensor([[[[-0.24]]]], requires_grad=True)
    weight = torch.tensor([[[[0.05]]]], requires_grad=True)
    bias = torch.tensor([-0.79], requires_grad=True)

    def block(x):
        x = F.conv2d(x, weight, bias)
        return x.flatten(1)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y = torch.relu_(y)
    y.sum().backward()


def outcome(checkpointed):
    try:
        run(checkpointed)
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return "no error"


plain, checkpointed = outcome(checkpointed=False), outcome(checkpointed=True)
print("plain:       ", plain)
print("checkpointed:", checkpointed)
different = (plain == "no error") != (checkpointed == "no error")
print("DIFFERENT: only one of them fails" if different else "same")
sys.exit(1 if different else 0)

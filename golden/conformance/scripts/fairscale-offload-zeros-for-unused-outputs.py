# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 5 (first of 1 that differ,
# of 6): expected -0 (0x80000000), got 0 (0x00000000)
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
    return checkpoint_wrapper(Holder(held_by(function)), True)


def checkpoint(function, *inputs, use_reentrant):
    return wrapped(function)(function, *inputs)


def run(checkpointed):
    x = torch.tensor([[-1.02, -0.49], [-0.31, -1.07], [-0.95, 0.81]], requires_grad=True)
    target = torch.tensor([[-0.96, 0.3], [-0.06, -0.9], [0.62, 0.57]])

    def block(x, b0):
        x = F.dropout(x)
        return x, b0

    torch.manual_seed(0)
    y, b0 = x, x
    y, b0 = checkpoint(block, y, b0, use_reentrant=True) if checkpointed else block(y, b0)
    F.mse_loss(y, target).backward()
    return {"x.grad": x.grad}


def same(a, b):
    if a is None or b is None:
        return a is b
    # To the bit: 0 is not -0.
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))


torch.set_printoptions(precision=9)
plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not same(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", "" if expected is None or got is None else got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

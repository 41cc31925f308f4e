# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 1 (dropout), forward: expected 2 elements from offset 0,
# hash 0xdf4e805ee0cb245f, got 2 elements from offset 0, hash 0x75ca910a4217e0df
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
    inputs = [torch.tensor([[1.51], [-1.39]])]
    entered = 0

    def block(x):
        nonlocal entered
        entered += 1
        if trial and entered > 1:
            raise RuntimeError("fails")
        return torch.relu(x)

    torch.manual_seed(0)
    def forward(x):
        y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
        y = F.dropout(y)
        return y

    trial = True
    x = torch.tensor([[0.04], [-1.32]], requires_grad=True)
    try:
        y = forward(x)
        loss = y.sum()
        loss.backward()
    except RuntimeError as error:
        print("trial:", error)
    trial = False
    results = {}
    for step in range(1):
        for i in range(step, step + 1):
            x = inputs[i].clone().requires_grad_()
            y = forward(x)
            loss = y.sum()
            loss.backward()
            results[f"step {step}, forward {i}: x.grad"] = x.grad
    return results


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

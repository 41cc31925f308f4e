# With checkpointing, the state of layers is not updated once per forward.
# Found at step 0, buffer 0 (layer 0 all), element 0 (first of 4 that differ, of 8): expected
# 0.033193632960319519 (0x3fa0fec180000000), got 0 (0x0000000000000000)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn

from functools import cache
from typing import Any

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
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    torch.manual_seed(0)
    x = torch.tensor([[[[0.6]]], [[[0.06]]]], requires_grad=True)
    m0 = nn.BatchNorm2d(1)

    def block0(x):
        return m0(x)

    def block1(x):
        return call(block0, x, use_reentrant=True)

    y = call(block1, x, use_reentrant=True)
    y.sum().backward()
    return {
        "m0.running_mean": m0.running_mean,
        "m0.running_var": m0.running_var,
        "m0.num_batches_tracked": m0.num_batches_tracked,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 1 (dropout), execution 1, result 2: expected
# aten::bernoulli, bits with hash ca08ea5bca49cc18, got aten::bernoulli, bits with hash
# df4e805ee0cb245f
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
    return checkpoint_wrapper(Holder(held_by(function)), True)


def checkpoint(function, *inputs, use_reentrant):
    return wrapped(function)(function, *inputs)


def run(checkpointed):
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    torch.manual_seed(1)
    generators = [torch.Generator().manual_seed(1) for _ in range(3)]
    x = torch.tensor([[-2.96], [-0.66]])
    m0 = nn.BatchNorm1d(1)

    def block0(x):
        return x * torch.bernoulli(torch.full_like(x, 0.5), generator=generators[2]) / 0.5

    def block1(x):
        return call(block0, x, use_reentrant=True)

    y = m0(x)
    y = call(block1, y, use_reentrant=True)
    y.sum().backward()
    return {"m0.weight.grad": m0.weight.grad, "m0.bias.grad": m0.bias.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 1: expected aten::mul, bits
# with hash 95e7811df9662451, got aten::mul, bits with hash 64d870085c5933f7
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
import random


def run(checkpointed):
    x = torch.tensor([[-1.03]], requires_grad=True)
    m0 = nn.Identity()

    def block(x):
        return x * random.random() if m0.training else 0.5 * x

    torch.manual_seed(0)
    random.seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
        loss = y.sum()
    loss.backward()
    return {"x.grad": x.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

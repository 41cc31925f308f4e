# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 1: expected aten::mv, bits
# with hash b5d715e44b8528f8, got aten::mv, bits with hash 7d449a7c60dbd79a
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

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
from torch.nn.utils import parametrizations as P


def run(checkpointed):
    x = torch.tensor([[-1.3725687, 0.025078129]], requires_grad=True)
    target = torch.tensor([[0.84138155, -0.08517212]])
    torch.manual_seed(3432430328)
    m0 = P.spectral_norm(nn.Linear(2, 2))

    def block(x):
        return m0(x)

    torch.manual_seed(3432430328)
    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    loss = F.mse_loss(y, target)
    loss.backward()
    return {
        "x.grad": x.grad,
        "m0.bias.grad": m0.bias.grad,
        "m0.parametrizations.weight.original.grad": m0.parametrizations.weight.original.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

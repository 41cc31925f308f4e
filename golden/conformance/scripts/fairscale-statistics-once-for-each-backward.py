# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 2, result 4: expected aten::add_,
# bits with hash 3304bc7bb02905fd, got aten::add_, bits with hash 4b888eb4c97d4093
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
    torch.manual_seed(0)
    x = torch.tensor([[[[-0.23]]], [[[-0.31]]]], requires_grad=True)
    m0 = nn.BatchNorm2d(1, momentum=None)

    def block(x):
        return m0(x)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    loss = y.sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return {"m0.num_batches_tracked": m0.num_batches_tracked}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

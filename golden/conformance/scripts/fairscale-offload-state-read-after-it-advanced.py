# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 1 (custom), execution 1, result 1: expected aten::mv, bits
# with hash a28bb3cabb257e6d, got aten::mv, bits with hash 2ed44e38aaccace2
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
from torch.nn.utils import parametrizations as P


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-0.97, 0.69]])
    m0 = nn.LSTM(2, 2, bidirectional=True)
    m1 = P.spectral_norm(nn.Linear(4, 4))

    def block(x):
        return m1(x)

    y = m0(x)[0]
    y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
    y.sum().backward()
    return {
        "m0.weight_ih_l0.grad": m0.weight_ih_l0.grad,
        "m0.weight_hh_l0.grad": m0.weight_hh_l0.grad,
        "m0.bias_ih_l0.grad": m0.bias_ih_l0.grad,
        "m0.bias_hh_l0.grad": m0.bias_hh_l0.grad,
        "m0.weight_ih_l0_reverse.grad": m0.weight_ih_l0_reverse.grad,
        "m0.weight_hh_l0_reverse.grad": m0.weight_hh_l0_reverse.grad,
        "m0.bias_ih_l0_reverse.grad": m0.bias_ih_l0_reverse.grad,
        "m0.bias_hh_l0_reverse.grad": m0.bias_hh_l0_reverse.grad,
        "m1.bias.grad": m1.bias.grad,
        "m1.parametrizations.weight.original.grad": m1.parametrizations.weight.original.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

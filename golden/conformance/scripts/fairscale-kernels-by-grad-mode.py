# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 6: expected
# aten::mkldnn_rnn_layer, bits with hash 63d8cdbc2de6ea22, got aten::mkldnn_rnn_layer, bits with
# hash b349afd3f3eb67fd
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


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.randn(3, 2, requires_grad=True)
    target = torch.randn(3, 4)
    m0 = nn.LSTM(2, 2, bidirectional=True)

    def block(x):
        return m0(x)[0]

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    F.mse_loss(y, target).backward()
    return {
        "x.grad": x.grad,
        "m0.weight_ih_l0.grad": m0.weight_ih_l0.grad,
        "m0.weight_hh_l0.grad": m0.weight_hh_l0.grad,
        "m0.bias_ih_l0.grad": m0.bias_ih_l0.grad,
        "m0.bias_hh_l0.grad": m0.bias_hh_l0.grad,
        "m0.weight_ih_l0_reverse.grad": m0.weight_ih_l0_reverse.grad,
        "m0.weight_hh_l0_reverse.grad": m0.weight_hh_l0_reverse.grad,
        "m0.bias_ih_l0_reverse.grad": m0.bias_ih_l0_reverse.grad,
        "m0.bias_hh_l0_reverse.grad": m0.bias_hh_l0_reverse.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

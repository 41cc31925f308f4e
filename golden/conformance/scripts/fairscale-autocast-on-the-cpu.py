# recomputed-values: In a recomputation, a layer's ops compute and its graph saves the same bits as before; the violation names the first value that differs.
# at: step 0, microbatch 0, layer 0 (linear), execution 1, result 1
# expected: aten::addmm, bits with hash a1a9b5e5e0c44e84
# got: aten::addmm, bits with hash 9552e72358bb21a0
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


def numbers(tensor):
    return None if tensor is None else tensor.tolist()


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-1.04]], requires_grad=True)
    target = torch.tensor([[-0.72]])
    weight0 = torch.tensor([[-0.14]], requires_grad=True)
    bias0 = torch.tensor([-0.35], requires_grad=True)
    parameters = {"weight0": weight0, "bias0": bias0}

    def segment_0_1(x):
        v0 = F.linear(x, weight0, bias0)
        return v0

    def forward(x):
        v0 = checkpoint(segment_0_1, x, use_reentrant=True) if checkpointed else segment_0_1(x)
        return (v0,)

    results = {}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = forward(x)
        loss = F.mse_loss(outputs[0].float(), target)
    loss.backward()
    results["x.grad"] = numbers(x.grad)
    results |= {f"{name}.grad": numbers(p.grad) for name, p in parameters.items()}
    return results


expected, got = run(False), run(True)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

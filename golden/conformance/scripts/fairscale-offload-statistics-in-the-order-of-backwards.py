# A recomputation gives other values than the forward.
# Found at step 0, microbatch 1, layer 1 (conv2d), execution 1, result 1: expected
# aten::convolution, bits with hash 618cbbed948574d9, got aten::convolution, bits with hash
# 77a845de14c4ff19
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
    return checkpoint_wrapper(Holder(held_by(function)), True)


def checkpoint(function, *inputs, use_reentrant):
    return wrapped(function)(function, *inputs)


def run(checkpointed):
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, 5, 5), torch.randn(1, 2, 5, 5)]
    targets = [torch.randn(1, 64), torch.randn(1, 64)]
    norm = nn.GroupNorm(1, 2)
    conv = nn.Conv2d(2, 4, 2)
    m2 = nn.BatchNorm2d(4, momentum=None)

    def block(x):
        return conv(x)

    def forward(x):
        y = norm(x)
        y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
        y = m2(y)
        return y

    results = {}
    for step in range(1):
        waiting = []
        for i in range(step * 2, step * 2 + 2):
            x = inputs[i].clone()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = forward(x)
                loss = F.mse_loss(y.flatten(1).float(), targets[i])
            waiting.append((i, x, loss))
        for i, x, loss in reversed(waiting):
            loss.backward()
        results[f"step {step}: norm.weight.grad"] = None if norm.weight.grad is None else norm.weight.grad.clone()
        results[f"step {step}: norm.bias.grad"] = None if norm.bias.grad is None else norm.bias.grad.clone()
        results[f"step {step}: conv.weight.grad"] = None if conv.weight.grad is None else conv.weight.grad.clone()
        results[f"step {step}: conv.bias.grad"] = None if conv.bias.grad is None else conv.bias.grad.clone()
        results[f"step {step}: m2.weight.grad"] = None if m2.weight.grad is None else m2.weight.grad.clone()
        results[f"step {step}: m2.bias.grad"] = None if m2.bias.grad is None else m2.bias.grad.clone()
    return results


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 0 (first of 2 that differ,
# of 5): expected 4.91566753 (0x409d4d26), got 0 (0x00000000)
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


def run(checkpointed):
    inputs = [torch.tensor([[3.3762784, -1.4583802, -0.3025665, 0.56751806, -1.7747086]])]
    targets = [torch.tensor([[0.6079726, -0.46580285, -0.7881149, 0.5421233, -0.38683617]])]
    entered = 0

    def block(x):
        return x * torch.bernoulli(torch.full_like(x, 0.5), generator=generators[0]) / 0.5

    torch.manual_seed(3163446313)
    generators = [torch.Generator().manual_seed(3163446313) for _ in range(1)]
    def forward(x):
        y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
        nonlocal entered
        entered += 1
        if trial and entered > 1:
            raise RuntimeError("fails")
        y = torch.relu(y)
        return y

    trial = True
    x = torch.tensor([[2.6656775, -0.16572848, 1.4214154, -0.517857, -1.5499183]], requires_grad=True)
    target = torch.tensor([[-0.1417349, -0.87006354, -0.78381205, -0.045865417, -0.47162426]])
    try:
        y = forward(x)
        loss = F.mse_loss(y, target)
        loss.backward()
    except RuntimeError as error:
        print("trial:", error)
    trial = False
    results = {}
    for step in range(1):
        for i in range(step, step + 1):
            x = inputs[i].clone().requires_grad_()
            y = forward(x)
            loss = F.mse_loss(y, targets[i])
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

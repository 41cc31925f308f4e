# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 1 (gaussian_noise), execution 1, result 1: expected
# aten::randn, bits with hash 40b725df42e31f66, got aten::randn, bits with hash ba522785b022d6e9
# torch 2.15.0+cu132; run: python this_file.py
import sys
from collections import defaultdict

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
    generators = [torch.Generator().manual_seed(0) for _ in range(1)]
    x = torch.tensor([[0.07]])
    m0 = nn.EmbeddingBag(2, 1, max_norm=0.5, mode='mean')
    drawn = defaultdict(list)

    def block(x):
        x = x + 0.5 * torch.randn(x.shape, dtype=x.dtype, generator=generators[0])
        drawn['gaussian_noise 1'].append(x.detach())
        return x

    y = x + m0((x.detach() > 0).long())
    y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
    y.sum().backward()
    return {
        "gaussian_noise 1 in the forward": drawn['gaussian_noise 1'][0],
        "gaussian_noise 1 the last time it ran": drawn['gaussian_noise 1'][-1],
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

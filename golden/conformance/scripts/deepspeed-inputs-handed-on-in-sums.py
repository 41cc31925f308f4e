# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 0 (first of 2 that differ,
# of 3): expected 1.3043052 (0x3fa6f379), got 1.30430532 (0x3fa6f37a)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.randn(1, 3, requires_grad=True)
    target = torch.randn(1, 3)
    linear = nn.Linear(6, 3)

    def block(x0):
        x = torch.cat((x0, x0), 1)
        return x, x0

    x0 = x
    y, x0 = checkpoint(block, x0, use_reentrant=True) if checkpointed else block(x0)
    y = linear(y)
    y = y + x0
    F.mse_loss(y, target).backward()
    return {"x.grad": x.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

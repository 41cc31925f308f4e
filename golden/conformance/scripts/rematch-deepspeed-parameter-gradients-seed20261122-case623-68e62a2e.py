# With checkpointing, the gradient of a parameter is another one.
# Found at step 0, gradient of parameter 0 (layer 0 group_norm weight), element 0 (first of 2 that
# differ, of 2): expected -2.25198121e-07 (0xb471cdfd), got 1.86393095e-07 (0x34482358)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


def run(checkpointed):
    x = torch.tensor([[0.33, -0.35]])
    target = torch.tensor([[0.2, -0.44, -0.66, 0.67]])
    weight = torch.tensor([0.97, 0.82], requires_grad=True)
    bias = torch.tensor([-0.02, -0.38], requires_grad=True)

    def block(a0):
        x = a0 + a0
        return x, a0

    a0 = torch.group_norm(x, 2, weight, bias)
    y, a0 = checkpoint(block, a0, use_reentrant=True) if checkpointed else block(a0)
    y = torch.cat((y, a0), 1)
    F.mse_loss(y, target).backward()
    return {"weight.grad": weight.grad, "bias.grad": bias.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

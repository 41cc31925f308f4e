# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 0 (first of 1 that differ,
# of 1): expected -0.451762527 (0xbee74d6b), got -0.451762557 (0xbee74d6c)
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
    x = torch.tensor([[0.06]], requires_grad=True)
    target = torch.tensor([[0.69]])
    weight = torch.tensor([[-0.18, -0.36]], requires_grad=True)
    bias = torch.tensor([0.13], requires_grad=True)
    m1 = nn.EmbeddingBag(2, 2, max_norm=0.5, mode='mean')

    def block(x0):
        x = torch.cat((x0, x0), 1)
        return x, x0

    x0 = x
    y, x0 = checkpoint(block, x0, use_reentrant=True) if checkpointed else block(x0)
    y = y + m1((y.detach() > 0).long())
    y = F.linear(y, weight, bias)
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

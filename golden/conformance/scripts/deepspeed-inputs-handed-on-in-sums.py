# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 3 (first of 1 that differ,
# of 4): expected 1.63131535 (0x3fd0cef1), got 1.63131547 (0x3fd0cef2)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


def run(checkpointed):
    x = torch.tensor([[-0.58], [-1.32], [0.41], [0.51]], requires_grad=True)

    def block(x0):
        x = torch.sigmoid(x0)
        x = x + x0
        return x, x0

    x0 = x
    y, x0 = checkpoint(block, x0, use_reentrant=True) if checkpointed else block(x0)
    y = y + x0
    y.sum().backward()
    return {"x.grad": x.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

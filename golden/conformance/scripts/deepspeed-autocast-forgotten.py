# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (linear), execution 1, result 1: expected aten::addmm,
# bits with hash 36e6c6e34835a925, got aten::addmm, bits with hash ffbf632b905d6f20
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
    x = torch.tensor([[0.6]], requires_grad=True)
    weight = torch.tensor([[0.21]], requires_grad=True)
    bias = torch.tensor([-0.64], requires_grad=True)

    def block(x):
        return F.linear(x, weight, bias)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
        loss = y.sum()
    loss.backward()
    return {"x.grad": x.grad, "weight.grad": weight.grad, "bias.grad": bias.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 1 (dropout), forward: expected 1 element from offset 0,
# hash 0x06e0f1055650bd76, got 1 element from offset 0, hash 0x4e842f2f50cc089e
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
    inputs = [torch.tensor([[-0.45]])]
    weight = torch.tensor([[-0.66]], requires_grad=True)
    bias = torch.tensor([0.91], requires_grad=True)
    entered = 0

    def block(x):
        nonlocal entered
        entered += 1
        if trial and entered > 1:
            raise RuntimeError("fails")
        return F.linear(x, weight, bias)

    torch.manual_seed(2)
    def forward(x):
        if checkpointed:
            y = checkpoint(
                block, x, use_reentrant=False, determinism_check="none", early_stop=False
            )
        else:
            y = block(x)
        y = F.dropout(y)
        return y

    trial = True
    x = torch.tensor([[-0.34]])
    try:
        y = forward(x)
        loss = y.sum()
        loss.backward()
    except RuntimeError as error:
        print("trial:", error)
    for p in (weight, bias,):
        p.grad = None
    trial = False
    results = {}
    for step in range(1):
        for i in range(step, step + 1):
            x = inputs[i].clone()
            y = forward(x)
            loss = y.sum()
            loss.backward()
        results[f"step {step}: weight.grad"] = None if weight.grad is None else weight.grad.clone()
        results[f"step {step}: bias.grad"] = None if bias.grad is None else bias.grad.clone()
    return results


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

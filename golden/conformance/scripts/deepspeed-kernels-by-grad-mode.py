# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 1 (first of 3 that differ,
# of 16): expected -0.0654762536 (0xbd86186a), got -0.0654762611 (0xbd86186b)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


def run(checkpointed):
    torch.manual_seed(0)
    inputs = [torch.randn(2, 8), torch.randn(2, 8)]
    m2 = nn.TransformerEncoderLayer(16, 2, 8, dropout=0.25).eval()

    def block(x0):
        x = x0 + x0
        return x, x0

    def forward(x):
        x0 = x
        y, x0 = checkpoint(block, x0, use_reentrant=True) if checkpointed else block(x0)
        y = torch.cat((y, x0), 1)
        y = m2(y)
        return y

    optimizer = torch.optim.Adam([*m2.parameters()], lr=0.05)
    results = {}
    for step in range(2):
        for i in range(step, step + 1):
            x = inputs[i].clone().requires_grad_()
            y = forward(x)
            loss = y.sum()
            loss.backward()
            results[f"step {step}, forward {i}: x.grad"] = x.grad
        optimizer.step()
        for p in (*m2.parameters(),):
            p.grad = None
    return results


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

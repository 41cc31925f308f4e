# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 0 (dropout), execution 1: expected 1 element of stream 3
# from offset 0, hash 0x06e0f1055650bd76, got 1 element of stream 3 from offset 0, hash
# 0x4e842f2f50cc089e
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
    x = torch.tensor([[0.41]], requires_grad=True)

    def block(x):
        return x * torch.bernoulli(torch.full_like(x, 0.5), generator=generators[2]) / 0.5

    torch.manual_seed(0)
    generators = [torch.Generator().manual_seed(0) for _ in range(3)]
    if checkpointed:
        y = checkpoint(
            block, x, use_reentrant=False, determinism_check="none", early_stop=False
        )
    else:
        y = block(x)
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

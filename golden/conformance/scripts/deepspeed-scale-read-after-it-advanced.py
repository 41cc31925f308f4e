# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 1 (dropout), execution 1: expected 1 element of stream 3
# from offset 0, hash 0x4e842f2f50cc089e, got 1 element of stream 3 from offset 0, hash
# 0x06e0f1055650bd76
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


def delayed_scaling(x, scale, training=True):
    """Divides x by the scale that forwards before this one left, which is of one element, and
    moves it halfway to the largest magnitude in x."""
    y = x / scale.clone()
    if training:
        with torch.no_grad():
            scale.copy_((scale + x.abs().max()) / 2)
    return y


def run(checkpointed):
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    x = torch.tensor([[-0.11]], requires_grad=True)
    scale = torch.ones(1)

    def block0(x):
        return delayed_scaling(x, scale)

    def block1(x):
        return x * torch.bernoulli(torch.full_like(x, 0.5), generator=generators[2]) / 0.5

    torch.manual_seed(0)
    generators = [torch.Generator().manual_seed(0) for _ in range(3)]
    y = call(block0, x, use_reentrant=True)
    y = call(block1, y, use_reentrant=True)
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

# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 0 (gaussian_noise), execution 1: expected 1 element of
# stream 2 from offset 0, hash 0x0f93ff42c81a4051, got 1 element of stream 2 from offset 0, hash
# 0xd1fa4cf594bc41e2
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
    x = torch.tensor([[0.01]], requires_grad=True)

    def block(x):
        x = x + 0.5 * torch.randn(x.shape, dtype=x.dtype, generator=generators[1])
        return torch.relu(x)

    torch.manual_seed(0)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
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

# With checkpointing, a layer does not run as often as it should.
# Found at step 0, microbatch 0, layer 0 (duplicate), checkpointed run: expected 2, got 1
# torch 2.15.0+cu132; run: python this_file.py
import sys
from collections import Counter

import torch

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


def run(checkpointed):
    x = torch.tensor([[-1.86]], requires_grad=True)
    runs = Counter()

    def block(x):
        runs["duplicate 0"] += 1
        return x, x

    y, b0 = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y.sum().backward()
    return {"runs of duplicate 0": runs["duplicate 0"]}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
for name, got in checkpointed.items():
    print(f"{name}\n  plain         {plain[name]}\n  checkpointed  {got}")
expected = {'runs of duplicate 0': 2}
print("expected:", expected)
different = [name for name in expected if checkpointed[name] != expected[name]]
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

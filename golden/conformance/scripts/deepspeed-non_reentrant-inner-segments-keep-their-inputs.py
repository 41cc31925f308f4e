# With checkpointing, a layer does not run as often as it should.
# Found at step 0, microbatch 0, layer 0 (embedding), checkpointed run: expected 3, got 2
# torch 2.15.0+cu132; run: python this_file.py
import sys
from collections import Counter

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
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    x = torch.tensor([[0]], dtype=torch.int64)
    weight = torch.tensor([[0.52]], requires_grad=True)
    runs = Counter()

    def block0(x):
        runs["embedding 0"] += 1
        return F.embedding(x, weight)

    def block1(x):
        return call(block0, x, use_reentrant=False, determinism_check="none", early_stop=False)

    y = call(block1, x, use_reentrant=False, determinism_check="none", early_stop=False)
    y.sum().backward()
    return {"runs of embedding 0": runs["embedding 0"]}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
for name, got in checkpointed.items():
    print(f"{name}\n  plain         {plain[name]}\n  checkpointed  {got}")
expected = {'runs of embedding 0': 3}
print("expected:", expected)
different = [name for name in expected if checkpointed[name] != expected[name]]
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

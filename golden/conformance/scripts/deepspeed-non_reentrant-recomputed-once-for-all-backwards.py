# With checkpointing, a layer does not run as often as it should.
# Found at step 0, microbatch 0, layer 0 (relu), checkpointed run: expected 3, got 2
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
    x = torch.tensor([[-1.65]], requires_grad=True)
    runs = Counter()

    def block(x):
        runs["relu 0"] += 1
        return torch.relu(x)

    if checkpointed:
        y = checkpoint(
            block, x, use_reentrant=False, determinism_check="none", early_stop=False
        )
    else:
        y = block(x)
    loss = y.sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return {"runs of relu 0": runs["relu 0"]}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
for name, got in checkpointed.items():
    print(f"{name}\n  plain         {plain[name]}\n  checkpointed  {got}")
expected = {'runs of relu 0': 3}
print("expected:", expected)
different = [name for name in expected if checkpointed[name] != expected[name]]
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# Something changes before the recomputation, and no error is raised.
# Found at trial of the checkpointed run, failure op_exchanged: expected an error, got none
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


def run(checkpointed, change):
    x = torch.tensor([[-0.11]], requires_grad=True)
    entered = 0

    def block(x):
        nonlocal entered
        entered += 1
        return torch.tanh(x) if change and entered > 1 else torch.relu(x)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    loss = y.sum()
    loss.backward()
    return {"x.grad": x.grad}


def outcome(checkpointed):
    try:
        return run(checkpointed, change=True)
    except RuntimeError as error:
        return f"RuntimeError: {error}"


right, changed = run(checkpointed=True, change=False), outcome(checkpointed=True)
print("nothing changed:       ", right)
print("changed, plain:        ", outcome(checkpointed=False))
print("changed, checkpointed: ", changed)
if isinstance(changed, str):
    print("same: an error is raised")
    sys.exit(0)
wrong = [name for name in right if not torch.equal(right[name], changed[name])]
print("DIFFERENT: no error is raised" + "".join(f", {name} is wrong" for name in wrong))
sys.exit(1)

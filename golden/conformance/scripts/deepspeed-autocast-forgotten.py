# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: mat1 and mat2 must have the same
# dtype, but got BFloat16 and Float
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
    x = torch.tensor([[1.1]])
    weight0 = torch.tensor([[0.83]], requires_grad=True)
    bias0 = torch.tensor([0.52], requires_grad=True)
    weight1 = torch.tensor([[0.81]], requires_grad=True)
    bias1 = torch.tensor([0.97], requires_grad=True)

    def block(x):
        return F.linear(x, weight1, bias1)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = F.linear(x, weight0, bias0)
        y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
        loss = y.sum()
    loss.backward()


def outcome(checkpointed):
    try:
        run(checkpointed)
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return "no error"


plain, checkpointed = outcome(checkpointed=False), outcome(checkpointed=True)
print("plain:       ", plain)
print("checkpointed:", checkpointed)
different = (plain == "no error") != (checkpointed == "no error")
print("DIFFERENT: only one of them fails" if different else "same")
sys.exit(1 if different else 0)

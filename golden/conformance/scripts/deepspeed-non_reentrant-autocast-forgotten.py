# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: expected m1 and m2 to have the
# same dtype, but got: c10::BFloat16 != float
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
    x = torch.tensor([[0.6]])
    weight = torch.tensor([[0.21]], requires_grad=True)
    bias = torch.tensor([-0.64], requires_grad=True)

    def block(x):
        return F.linear(x, weight, bias)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        if checkpointed:
            y = checkpoint(
                block, x, use_reentrant=False, determinism_check="none", early_stop=False
            )
        else:
            y = block(x)
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

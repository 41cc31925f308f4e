# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: Checkpointing is not compatible
# with .grad(), please use .backward() if possible
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


def slope(m, x):
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        gradient = torch.autograd.grad(m(y).tanh().sum(), y)[0]
    return m(x) + gradient


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[1.82]])
    m0 = nn.Linear(1, 1)

    def block(x):
        return slope(m0, x)

    if checkpointed:
        y = checkpoint(
            block, x, use_reentrant=False, determinism_check="none", early_stop=False
        )
    else:
        y = block(x)
    y.sum().backward()


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

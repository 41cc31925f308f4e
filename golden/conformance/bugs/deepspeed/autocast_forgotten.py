"""deepspeed.checkpointing.checkpoint() under torch.autocast: the recomputation runs in float32.

The backward does not enter the autocast of the forward again: the gradient belongs to a product in float32, the output to one
in bfloat16. Where the segment has operands of two dtypes it is an error, as it is with non_reentrant_checkpoint().

severity: silent, wrong gradients by rounding
versions: deepspeed, torch
promise: "This has been directly copied from torch.utils.checkpoint" (docstring of checkpoint), which enters autocast again
cause: deepspeed/runtime/activation_checkpointing/checkpointing.py, CheckpointFunction: keeps random states, not the autocast
"""

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.utils.checkpoint

x, weight = torch.ones(1, 2, requires_grad=True), torch.full((1, 2), 1.001)


def gradient(run, enabled):
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        y = run(lambda x: torch.nn.functional.linear(x, weight).float().sin(), x)
    x.grad = None
    y.sum().backward()
    return x.grad[0].tolist()


def is_wrong(name, checkpoint, enabled=True):
    got, expected = gradient(checkpoint, enabled), gradient(lambda run, x: run(x), enabled)
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


is_wrong("control: no autocast", deepspeed.checkpointing.checkpoint, enabled=False)
is_wrong("control: torch", lambda run, x: torch.utils.checkpoint.checkpoint(run, x, use_reentrant=True))
sys.exit(is_wrong("deepspeed", deepspeed.checkpointing.checkpoint))

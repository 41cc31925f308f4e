"""deepspeed.checkpointing.checkpoint(): when a recomputation raises, the random state of its forward stays set.

A loop that catches the error, of memory say, and goes on with the next batch draws once more what the failed one drew: the same
masks, the same noise. non_reentrant_checkpoint() does the same.

severity: silent, random numbers drawn twice
versions: deepspeed, torch
promise: "Set the states back to what it was at the start of this function" (comment in CheckpointFunction.backward); "This has
    been directly copied from torch.utils.checkpoint" (docstring of checkpoint), which sets them back in any case
cause: deepspeed/runtime/activation_checkpointing/checkpointing.py:742 and :977: sets the states back behind the recomputation,
    with no `finally`
"""

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.utils.checkpoint


def is_wrong(name, checkpoint, fails=True, **options):
    x, drawn = torch.ones(1, requires_grad=True), []

    def noisy(x):
        drawn.append(torch.rand(1).item())
        if fails and len(drawn) == 2:
            raise MemoryError
        return x * x * drawn[-1]

    torch.manual_seed(0)
    expected = torch.rand(3)[2].item()
    torch.manual_seed(0)
    y = checkpoint(noisy, x, **options) + torch.rand(1)
    try:
        y.backward()
    except MemoryError as error:
        drawn.append(error)
    got = torch.rand(1).item()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: next number {got:.4f}, expected {expected:.4f}")
    return got != expected


is_wrong("control: nothing raises", deepspeed.checkpointing.checkpoint, fails=False)
is_wrong("control: torch", torch.utils.checkpoint.checkpoint, use_reentrant=True)
wrong = is_wrong("checkpoint", deepspeed.checkpointing.checkpoint)
wrong |= is_wrong("non_reentrant_checkpoint", deepspeed.checkpointing.non_reentrant_checkpoint)
sys.exit(wrong)

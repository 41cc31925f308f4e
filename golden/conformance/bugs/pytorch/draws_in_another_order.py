"""inductor with fallback_random: what follows a checkpoint draws before the checkpoint does.

A dropout behind a convolution in a checkpointed segment, and another one behind the segment: compiled they draw in the other
order, so that both masks differ from the eager ones.

severity: silent, other masks
promise: "fallback to eager for random/dropout, this is slow but useful for debugging" (torch/_inductor/config.py)
cause: torch/_functorch/partitioners.py and the scheduler: nothing orders draws of a checkpointed part among others
"""

import sys

import torch
import torch._inductor.config as config
from torch import nn
from torch.utils.checkpoint import checkpoint

config.fallback_random = True
torch.manual_seed(0)
conv, x = nn.Conv2d(2, 2, 3, padding=1), torch.ones(1, 2, 3, 3, requires_grad=True)


def is_wrong(name, middle, run):
    def step(x):
        return nn.functional.dropout(run(lambda x: nn.functional.dropout(middle(x)), x))

    zeros = []
    for call in (step, torch.compile(step)):
        torch.manual_seed(0)
        zeros.append((call(x) == 0).flatten().int().tolist())
    print(f"{name}: {'WRONG' if zeros[0] != zeros[1] else 'right'}: dropped {zeros[1]}, expected {zeros[0]}")
    return zeros[0] != zeros[1]


def checkpointed(block, x):
    return checkpoint(block, x, use_reentrant=False)


is_wrong("control: no checkpoint", conv, lambda block, x: block(x))
is_wrong("control: no convolution", torch.sin, checkpointed)
sys.exit(is_wrong("a checkpoint", conv, checkpointed))

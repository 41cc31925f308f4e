# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: Output 0 of CheckpointFunction
# is a view and is being modified inplace
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[[0.44]]], requires_grad=True)
    weight = torch.tensor([0.96], requires_grad=True)
    bias = torch.tensor([0.16], requires_grad=True)

    def block(x):
        x = F.layer_norm(x, (1,), weight, bias)
        return x.flatten(1)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y = torch.relu_(y)
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

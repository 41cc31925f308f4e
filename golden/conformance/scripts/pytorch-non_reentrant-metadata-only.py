# Something changes before the recomputation, and no error is raised.
# Found at trial of the checkpointed run, failure op_exchanged: expected an error, got none
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed, change):
    x = torch.tensor([[-0.9326135]], requires_grad=True)
    target = torch.tensor([[-0.36622274]])
    entered = 0

    def block(x):
        nonlocal entered
        entered += 1
        return torch.tanh(x) if change and entered > 1 else torch.relu(x)

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    loss = F.mse_loss(y, target)
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

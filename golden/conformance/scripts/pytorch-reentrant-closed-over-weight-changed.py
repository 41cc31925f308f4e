# Something changes before the recomputation, and no error is raised.
# Found at trial of the checkpointed run, failure weight_changed: expected an error, got none
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed, change):
    x = torch.tensor([[0.89]], requires_grad=True)
    weight = torch.tensor([[-0.86]], requires_grad=True)
    bias = torch.tensor([-0.4], requires_grad=True)

    def block(x):
        return F.linear(x, weight, bias)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    loss = y.sum()
    if change:
        with torch.no_grad():
            weight.mul_(-1.5).sub_(1)
    loss.backward()
    return {"x.grad": x.grad, "weight.grad": weight.grad, "bias.grad": bias.grad}


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

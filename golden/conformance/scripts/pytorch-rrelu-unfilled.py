# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 0 (rrelu), draws: expected 2, got 1
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.use_deterministic_algorithms(True)  # memory that nobody wrote to is NaN


def run(checkpointed):
    x = torch.tensor([[-0.58]], requires_grad=True)

    def block(x):
        return F.rrelu(x, training=True)

    torch.manual_seed(0)
    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    y.sum().backward()
    return {"x.grad": x.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

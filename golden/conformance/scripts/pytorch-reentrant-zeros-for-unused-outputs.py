# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 3 (first of 1 that differ,
# of 4): expected -0 (0x80000000), got 0 (0x00000000)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[-0.58], [-1.32], [0.41], [0.51]], requires_grad=True)
    target = torch.tensor([[-0.88], [-0.04], [-0.56], [0.17]])

    def block(x, b0):
        x = F.dropout(x)
        return x, b0

    torch.manual_seed(0)
    y, b0 = x, x
    y, b0 = checkpoint(block, y, b0, use_reentrant=True) if checkpointed else block(y, b0)
    F.mse_loss(y, target).backward()
    return {"x.grad": x.grad}


def same(a, b):
    if a is None or b is None:
        return a is b
    # To the bit: 0 is not -0.
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))


torch.set_printoptions(precision=9)
plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not same(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", "" if expected is None or got is None else got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

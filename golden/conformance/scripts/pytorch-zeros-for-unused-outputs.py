# With checkpointing, the gradient of a parameter is another one.
# Found at step 0, gradient of parameter 0 (layer 0 linear weight), element 4 (first of 2 that
# differ, of 6): expected 0 (0x00000000), got -0 (0x80000000)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[-0.72, 0.22]])
    target = torch.tensor([[0.2, -0.54, 0.67]])
    weight = torch.tensor([[-0.36, 0.39], [0.48, -0.69], [0.05, 0.25]], requires_grad=True)
    bias = torch.tensor([-0.27, -0.05, -0.34], requires_grad=True)

    def block(x):
        return x, x

    torch.manual_seed(0)
    y = F.linear(x, weight, bias)
    y, b1 = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
    y = F.dropout(y)
    F.mse_loss(y, target).backward()
    return {"weight.grad": weight.grad, "bias.grad": bias.grad}


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

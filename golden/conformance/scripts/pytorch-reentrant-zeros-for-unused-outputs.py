# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 1, gradient of the model input, element 1 (first of 1 that differ,
# of 2): expected -0 (0x80000000), got 0 (0x00000000)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    inputs = [torch.tensor([[-0.28, -1.98]]), torch.tensor([[-0.59, 1.37]])]
    targets = [torch.tensor([[0.87, -0.84]]), torch.tensor([[-0.3, 0.91]])]

    def block(x):
        return x, x

    torch.manual_seed(0)
    def forward(x):
        y, b0 = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
        y = F.dropout(y)
        return y, b0

    results = {}
    for step in range(1):
        for i in range(step * 2, step * 2 + 2):
            x = inputs[i].clone().requires_grad_()
            y, b0 = forward(x)
            loss = F.mse_loss(y, targets[i])
            loss.backward()
            results[f"step {step}, forward {i}: x.grad"] = x.grad
    return results


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

# With checkpointing, the gradient of a parameter is another one.
# Found at step 0, gradient of parameter 0 (layer 0 linear weight), element 0 (first of 1 that
# differ, of 1): expected 8.625 (0x410a0000), got 8.640625 (0x410a4000)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[-2.71]], requires_grad=True)
    weight = torch.tensor([[0.37]], requires_grad=True)
    bias = torch.tensor([-0.74], requires_grad=True)

    def block(x):
        return F.linear(x, weight, bias)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
        y = F.linear(y, weight, bias)
        loss = y.sum()
    loss.backward()
    return {"x.grad": x.grad, "weight.grad": weight.grad, "bias.grad": bias.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# With checkpointing, the gradient of a parameter is another one.
# Found at step 0, gradient of parameter 1 (layer 1 linear weight), element 0 (first of 1 that
# differ, of 1): expected -1.1640625 (0xbf950000), got -1.16601562 (0xbf954000)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[0.34]])
    weight = torch.tensor([[-0.91]], requires_grad=True)
    bias = torch.tensor([-0.3], requires_grad=True)
    m0 = nn.EmbeddingBag(2, 1, max_norm=0.5, mode='mean')

    def block(x):
        return F.linear(x, weight, bias)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x + m0((x.detach() > 0).long())
        y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
        y = F.linear(y, weight, bias)
        loss = y.sum()
    loss.backward()
    return {"m0.weight.grad": m0.weight.grad, "weight.grad": weight.grad, "bias.grad": bias.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

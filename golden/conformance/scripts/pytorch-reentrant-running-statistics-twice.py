# With checkpointing, running statistics are not updated once per forward.
# Found at step 0, buffer 0 (layer 1 running_mean), element 0 (first of 1 that differ, of 1):
# expected -0.0101025263 (0xbc258511), got -0.0191948004 (0xbc9d3e6a)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[0.33], [0.16]])
    weight0 = torch.tensor([[-0.87]], requires_grad=True)
    bias0 = torch.tensor([0.11], requires_grad=True)
    weight1 = torch.tensor([1.33], requires_grad=True)
    bias1 = torch.tensor([0.45], requires_grad=True)
    running_mean = torch.zeros(1)
    running_var = torch.ones(1)

    def block(x):
        return F.batch_norm(x, running_mean, running_var, weight1, bias1, training=True)

    y = F.linear(x, weight0, bias0)
    y = checkpoint(block, y, use_reentrant=True) if checkpointed else block(y)
    y.sum().backward()
    return {"running_mean": running_mean, "running_var": running_var}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

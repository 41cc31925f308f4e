# With checkpointing, the state of layers is not updated once per forward.
# Found at step 0, buffer 0 (layer 0 running_mean), element 0 (first of 1 that differ, of 1):
# expected -0.0261105802 (0xbcd5e5db), got -0.0496101007 (0xbd4b33f6)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[0.01], [-0.54]])
    weight = torch.tensor([1.23], requires_grad=True)
    bias = torch.tensor([-0.4], requires_grad=True)
    running_mean = torch.zeros(1)
    running_var = torch.ones(1)

    def block(x):
        return F.batch_norm(x, running_mean, running_var, weight, bias, training=True)

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
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

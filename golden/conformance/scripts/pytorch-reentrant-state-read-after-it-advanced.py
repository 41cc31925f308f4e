# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 1: expected aten::add_,
# bits with hash 3304bc7bb02905fd, got aten::add_, bits with hash 4b888eb4c97d4093
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[[[-0.21]]], [[[-1.24]]]], requires_grad=True)
    m0 = nn.BatchNorm2d(1, momentum=None)

    def block(x):
        return m0(x)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y.sum().backward()
    return {"m0.num_batches_tracked": m0.num_batches_tracked}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

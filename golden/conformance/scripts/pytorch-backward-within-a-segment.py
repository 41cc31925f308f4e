# With checkpointing, a layer does not run as often as it should.
# Found at step 0, microbatch 0, layer 0 (custom), checkpointed run: expected 2, got 3
# torch 2.15.0+cu132; run: python this_file.py
import sys
from collections import Counter

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


def slope(m, x):
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        gradient = torch.autograd.grad(m(y).tanh().sum(), y)[0]
    return m(x) + gradient


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[1.82]])
    m0 = nn.Linear(1, 1)
    runs = Counter()

    def block(x):
        runs["custom 0"] += 1
        return slope(m0, x)

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    y.sum().backward()
    return {"runs of custom 0": runs["custom 0"]}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
for name, got in checkpointed.items():
    print(f"{name}\n  plain         {plain[name]}\n  checkpointed  {got}")
expected = {'runs of custom 0': 2}
print("expected:", expected)
different = [name for name in expected if checkpointed[name] != expected[name]]
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

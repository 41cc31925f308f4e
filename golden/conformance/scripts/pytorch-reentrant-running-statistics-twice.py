# With checkpointing, the state of layers is not updated once per forward.
# Found at step 0, buffer 0 (layer 0 scale), element 0 (first of 1 that differ, of 1): expected
# 0.557402611 (0x3f0eb1f0), got 0.336103886 (0x3eac15cf)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
from torch.utils.checkpoint import checkpoint


def delayed_scaling(x, scale, training=True):
    """Divides x by the scale that forwards before this one left, which is of one element, and
    moves it halfway to the largest magnitude in x."""
    y = x / scale.clone()
    if training:
        with torch.no_grad():
            scale.copy_((scale + x.abs().max()) / 2)
    return y


def run(checkpointed):
    x = torch.tensor([[-0.11]], requires_grad=True)
    scale = torch.ones(1)

    def block(x):
        return delayed_scaling(x, scale)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y.sum().backward()
    return {"scale": scale}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

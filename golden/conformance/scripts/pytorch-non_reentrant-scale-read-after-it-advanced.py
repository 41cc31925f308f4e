# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (delayed_scaling), execution 1, result 1: expected
# aten::clone, bits with hash 06e0f1055650bd76, got aten::clone, bits with hash 600d17ba4d516f6d
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
    x = torch.tensor([[-3.01]], requires_grad=True)
    scale = torch.ones(1)

    def block(x):
        return delayed_scaling(x, scale)

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    y.sum().backward()
    return {"x.grad": x.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

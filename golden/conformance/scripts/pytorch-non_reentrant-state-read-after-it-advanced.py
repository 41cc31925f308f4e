# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 1: expected aten::mv, bits
# with hash 79d725788e2da383, got aten::mv, bits with hash d7a253dde827e931
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.nn.utils import parametrizations as P


def run(checkpointed):
    x = torch.tensor([[1.2958002, 1.3163526]])
    target = torch.tensor([[0.3590591, 0.8600172]])
    torch.manual_seed(2127521875224403545)
    m0 = P.spectral_norm(nn.Linear(2, 2))

    def block(x):
        return m0(x)

    torch.manual_seed(11350893912079179353)
    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    loss = F.mse_loss(y, target)
    loss.backward()
    return {
        "m0.bias.grad": m0.bias.grad,
        "m0.parametrizations.weight.original.grad": m0.parametrizations.weight.original.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# With checkpointing, a forward returns other outputs.
# Found at step 0, microbatch 0, output 0, element 3 (first of 1 that differ, of 8): expected
# -0.130878657 (0xbe06050e), got -0.130878642 (0xbe06050d)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[0.15366797, -0.8914133], [-0.74146545, 0.77022845]])
    target = torch.tensor([[0.06960797, -0.54331833, 0.14463651, -0.4242447], [0.303627, -0.2527485, -0.41296983, -0.71519196]])
    torch.manual_seed(198702987)
    m0 = nn.LSTM(2, 2, bidirectional=True)
    # The reentrant variant takes these for constants.
    m0.requires_grad_(checkpointed)

    def block(x):
        return m0(x)[0]

    torch.manual_seed(198702987)
    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    loss = F.mse_loss(y, target)
    if loss.requires_grad:
        loss.backward()
    return {"output": y.detach(), "loss": loss.detach()}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

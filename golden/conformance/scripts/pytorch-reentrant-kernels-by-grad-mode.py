# With checkpointing, a forward returns other outputs.
# Found at step 0, microbatch 0, output 0, element 3 (first of 2 that differ, of 8): expected
# -0.12215741 (0xbdfa2daa), got -0.122157395 (0xbdfa2da8)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[0.01486407, -0.7634453], [0.5203602, -0.021895861]])
    target = torch.tensor([[-0.011705279, 0.047680378, -0.9223361, 0.34360468], [-0.11935282, 0.9590919, 0.34265935, 0.44721055]])
    torch.manual_seed(4183215890)
    m0 = nn.LSTM(2, 2, bidirectional=True)
    # The reentrant variant takes these for constants.
    m0.requires_grad_(checkpointed)

    def block(x):
        return m0(x)[0]

    torch.manual_seed(4183215890)
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

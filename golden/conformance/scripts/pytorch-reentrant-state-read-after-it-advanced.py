# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 2: expected aten::mul, bits
# with hash 59a27e037d93dcf0, got aten::mul, bits with hash 6191438eca917bd6
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Warmup(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return self.linear(x) * min(1.0, self.calls / 10)


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-1.4]], requires_grad=True)
    m0 = Warmup(1)

    def block(x):
        return m0(x)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y.sum().backward()
    return {
        "x.grad": x.grad,
        "m0.linear.weight.grad": m0.linear.weight.grad,
        "m0.linear.bias.grad": m0.linear.bias.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (dropout), execution 1, result 2: expected
# aten::bernoulli, bits with hash ca08ea5bca49cc18, got aten::bernoulli, bits with hash
# df4e805ee0cb245f
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    torch.manual_seed(0)
    generators = [torch.Generator().manual_seed(0) for _ in range(3)]
    x = torch.tensor([[-0.51], [-0.31]], requires_grad=True)
    m1 = nn.EmbeddingBag(2, 1, max_norm=0.5, mode='mean')

    def block(x):
        return x * torch.bernoulli(torch.full_like(x, 0.5), generator=generators[2]) / 0.5

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    y = y + m1((y.detach() > 0).long())
    y.sum().backward()
    return {"x.grad": x.grad, "m1.weight.grad": m1.weight.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

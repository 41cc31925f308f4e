# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 0 (gaussian_noise), execution 1: expected 1 element of
# stream 1 from offset 0, hash 0xfb13af42ecdee4c1, got 1 element of stream 1 from offset 0, hash
# 0x0d47833b623efbaf
# torch 2.15.0+cu132; run: python this_file.py
import sys
from collections import defaultdict

import torch
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    x = torch.tensor([[-0.75]], requires_grad=True)
    drawn = defaultdict(list)

    def block(x):
        x = x + 0.5 * torch.randn(x.shape, dtype=x.dtype, generator=generators[0])
        drawn['gaussian_noise 0'].append(x.detach())
        return x

    torch.manual_seed(0)
    generators = [torch.Generator().manual_seed(0) for _ in range(1)]
    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y.sum().backward()
    return {
        "gaussian_noise 0 in the forward": drawn['gaussian_noise 0'][0],
        "gaussian_noise 0 the last time it ran": drawn['gaussian_noise 0'][-1],
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 3: expected aten::repeat,
# bits with hash 4e842f2f50cc089e, got aten::repeat, bits with hash 99ba3a122e324e38
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[[[0.43, -1.36]]]], requires_grad=True)
    m0 = nn.InstanceNorm2d(1, affine=True, track_running_stats=True)

    def block(x):
        return m0(x)

    y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
    y.sum().backward()
    return {"m0.running_mean": m0.running_mean, "m0.running_var": m0.running_var}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 2 (custom), execution 1, result 1: expected aten::mv, bits
# with hash fb13a73dbed60f2f, got aten::mv, bits with hash e6fc99fae9d12278
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)
from torch.nn.utils import parametrizations as P


def run(checkpointed):
    x = torch.tensor([[-0.9696014, 0.69449186]])
    target = torch.tensor([[0.9166186, 0.23153508]])
    torch.manual_seed(4127141258)
    m2 = P.spectral_norm(nn.Linear(2, 2))

    def block(x):
        return m2(x)

    torch.manual_seed(4127141256)
    y = torch.relu(x)
    y = torch.relu(y)
    if checkpointed:
        y = checkpoint(
            block, y, use_reentrant=False, determinism_check="none", early_stop=False
        )
    else:
        y = block(y)
    loss = F.mse_loss(y, target)
    loss.backward()
    return {
        "m2.bias.grad": m2.bias.grad,
        "m2.parametrizations.weight.original.grad": m2.parametrizations.weight.original.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

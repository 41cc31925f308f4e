# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 0 (custom), execution 1, result 2: expected aten::addmm,
# bits with hash 1032fab655dc5e68, got aten::addmm, bits with hash 9e9d5cd57d20a594
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
    x = torch.tensor([[0.48]], requires_grad=True)
    m0 = nn.GRU(1, 1, 2, dropout=0.25)

    def block(x):
        return m0(x)[0]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(block, x, use_reentrant=True) if checkpointed else block(x)
        loss = y.sum()
    loss.backward()
    return {
        "x.grad": x.grad,
        "m0.weight_ih_l0.grad": m0.weight_ih_l0.grad,
        "m0.weight_hh_l0.grad": m0.weight_hh_l0.grad,
        "m0.bias_ih_l0.grad": m0.bias_ih_l0.grad,
        "m0.bias_hh_l0.grad": m0.bias_hh_l0.grad,
        "m0.weight_ih_l1.grad": m0.weight_ih_l1.grad,
        "m0.weight_hh_l1.grad": m0.weight_hh_l1.grad,
        "m0.bias_ih_l1.grad": m0.bias_ih_l1.grad,
        "m0.bias_hh_l1.grad": m0.bias_hh_l1.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

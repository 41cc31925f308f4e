# recomputed-values: In a recomputation, a layer's ops compute and its graph saves the same bits as before; the violation names the first value that differs.
# at: step 0, microbatch 0, layer 0 (linear), execution 1, result 1
# expected: aten::addmm, bits with hash bae43aaa1714687f
# got: aten::addmm, bits with hash 6d0599f8919e1d44
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F

from typing import Any

import deepspeed


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can say only that there is no determinism check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-1.42]], requires_grad=True)
    target = torch.tensor([[0.13]])
    weight0 = torch.tensor([[-0.67]], requires_grad=True)
    bias0 = torch.tensor([-0.29], requires_grad=True)

    def segment_0_1(x):
        v0 = F.linear(x, weight0, bias0)
        return v0

    def forward(x):
        v0 = checkpoint(segment_0_1, x, use_reentrant=True) if checkpointed else segment_0_1(x)
        return (v0,)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = forward(x)
        loss = F.mse_loss(outputs[0].float(), target)
    loss.backward()
    return x.grad.tolist()


expected, got = run(False), run(True)
different = repr(expected) != repr(got)
print(f"x.grad\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: x.grad" if different else "same")
sys.exit(1 if different else 0)

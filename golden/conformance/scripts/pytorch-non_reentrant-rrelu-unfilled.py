# dropout-masks: A recomputation of a random layer draws what its forward drew, and every forward draws what the plain run drew.
# at: step 0, microbatch 0, layer 0 (rrelu), draws
# expected: 2
# got: 1
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


torch.use_deterministic_algorithms(True)  # memory that nobody wrote to is NaN


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[0.04]], requires_grad=True)
    target = torch.tensor([[-0.9]])

    def segment_0_1(x):
        v0 = F.rrelu(x, training=True)
        return v0

    def forward(x):
        v0 = checkpoint(segment_0_1, x, use_reentrant=False) if checkpointed else segment_0_1(x)
        return (v0,)

    outputs = forward(x)
    loss = F.mse_loss(outputs[0], target)
    loss.backward()
    return x.grad.tolist()


expected, got = run(False), run(True)
different = repr(expected) != repr(got)
print(f"x.grad\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: x.grad" if different else "same")
sys.exit(1 if different else 0)

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
    x = torch.tensor([[[0.71, -0.98, -0.9, -0.16], [-0.38, -0.38, 0.29, 0.41], [1.75, -0.81, 1.14, 0.27], [0.13, 0.68, -1.21, -0.52]]], requires_grad=True)
    target = torch.tensor([[-0.69, 0.19, 0.68, -0.96, -0.57, -0.78, 0.62, 0.01, 1.0, 0.08, -0.4, -0.38, 0.51, 0.94, -0.75, 0.49]])
    parameters = {}
    for p in parameters.values():
        p.grad = torch.ones_like(p)

    def segment_0_1(x):
        v0 = F.rrelu(x, training=True)
        return v0

    def forward(x):
        v0 = checkpoint(segment_0_1, x, use_reentrant=False) if checkpointed else segment_0_1(x)
        return (v0,)

    outputs = forward(x)
    loss = F.mse_loss(outputs[0].flatten(1), target)
    loss.backward()
    return x.grad.tolist()


expected, got = run(False), run(True)
different = repr(expected) != repr(got)
print(f"x.grad\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: x.grad" if different else "same")
sys.exit(1 if different else 0)

# input-gradients: The gradient of the model input has the same bits as in the plain run.
# at: step 0, microbatch 0, gradient of the model input, element 0 (first of 1 that differ, of 1)
# expected: -0.0947248191 (0xbdc1ff16)
# got: nan (0x7fc00000)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


torch.use_deterministic_algorithms(True)  # memory that nobody wrote to is NaN


def numbers(tensor):
    return None if tensor is None else tensor.tolist()


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-0.05]], requires_grad=True)
    target = torch.tensor([[0.29]])

    def segment_0_1(x):
        v0 = F.rrelu(x, training=True)
        return v0

    def forward(x):
        v0 = checkpoint(segment_0_1, x, use_reentrant=False) if checkpointed else segment_0_1(x)
        return (v0,)

    results = {}
    outputs = forward(x)
    loss = F.mse_loss(outputs[0], target)
    loss.backward()
    results["x.grad"] = numbers(x.grad)
    return results


expected, got = run(False), run(True)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

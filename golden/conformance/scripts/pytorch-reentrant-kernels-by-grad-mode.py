# A recomputation gives other values than the forward.
# Found at step 0, microbatch 0, layer 2 (rrelu), execution 1, result 1: expected
# aten::rrelu_with_noise, bits with hash 0802b5b9c8ba1206, got aten::rrelu_with_noise, bits with
# hash daa08428ac15bc53
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.use_deterministic_algorithms(True)  # memory that nobody wrote to is NaN


def run(checkpointed):
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    torch.manual_seed(0)
    generators = [torch.Generator().manual_seed(0) for _ in range(1)]
    x = torch.tensor([[-0.02], [1.58], [-1.12]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[0.6]], dtype=torch.float64, requires_grad=True)
    bias = torch.tensor([-0.97], dtype=torch.float64, requires_grad=True)
    m0 = nn.GRU(1, 1, 2, dropout=0.25).double()

    def block0(x):
        x = m0(x)[0]
        return F.linear(x, weight, bias)

    def block1(x):
        return torch.ops.aten.rrelu_with_noise(x, torch.empty_like(x), 1 / 8, 1 / 3, True, generators[0])

    y = call(block0, x, use_reentrant=True)
    y = call(block1, y, use_reentrant=True)
    y.sum().backward()
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
        "weight.grad": weight.grad,
        "bias.grad": bias.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)

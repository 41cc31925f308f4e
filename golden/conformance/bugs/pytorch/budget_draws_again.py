"""torch.compile: with activation_memory_budget below 1 the backward draws a dropout mask anew.

The partitioner recomputes the draw itself, as if it were any other operator, and the backward moves the random state on.

severity: silent, wrong gradients
promise: none in the documentation; every other way to recompute draws the same numbers
cause: torch/_functorch/partitioners.py, choose_saved_values_set: chooses by bytes what is saved, and lets what draws run again
"""

import sys

import torch
import torch._functorch.config as config

x = torch.ones(8, requires_grad=True)


def is_wrong(name, budget):
    config.activation_memory_budget = budget
    torch._dynamo.reset()
    torch.manual_seed(0)
    block = torch.compile(lambda x: torch.nn.functional.dropout(x.sin().sin(), 0.5).cos(), backend="aot_eager")
    y = block(x)
    gradient = torch.autograd.grad(y.sum(), x)[0]
    # cos(0) is 1: where the mask drops an element, the output is 1 and the gradient is 0.
    dropped, without = (y == 1).int().tolist(), (gradient == 0).int().tolist()
    wrong = dropped != without
    print(f"{name}: {'WRONG' if wrong else 'right'}: no gradient for {without}, expected {dropped}")
    return wrong


is_wrong("control: budget 1", 1.0)
sys.exit(is_wrong("budget 0", 0.0))

"""paddle.grad() through recompute(): adds to the gradients of parameters, and a second derivative lacks the segment.

A gradient penalty then trains on another loss: with create_graph=True the gradient is a constant, so that the penalty has no
gradient, and the weights have one from the first pass that nobody asked for. PyTorch raises an error for the same.

severity: silent, wrong gradients
versions: paddlepaddle
promise: "only the gradients of `inputs` would be computed"; of create_graph: "When it is True, higher order derivatives are
    supported to compute" (docstring of paddle.grad)
cause: paddle/distributed/fleet/recompute/recompute.py:376, RecomputeFunction.backward: calls paddle.autograd.backward(), which
    accumulates in all leaves and makes no graph, whatever the call around it is
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, around, create_graph, **options):
    x, w = paddle.to_tensor([2.0], stop_gradient=False), paddle.to_tensor([1.0], stop_gradient=False)
    (first,) = paddle.grad(around(lambda x: x * x * x * w, x, **options), x, create_graph=create_graph)
    if create_graph:
        (first + x * w).backward()
    got = [None if tensor.grad is None else tensor.grad.item() for tensor in (x, w)]
    expected = [13.0, 14.0] if create_graph else [None, None]
    print(f"{name}: {'WRONG' if got != expected else 'right'}: x.grad and w.grad {got}, expected {expected}")
    return got != expected


def plain(function, x):
    return function(x)


wrong = False
for name, create_graph in (("paddle.grad", False), ("second derivative", True)):
    is_wrong(f"control: {name}, no recompute", plain, create_graph)
    is_wrong(f"control: {name}, use_reentrant=False", recompute, create_graph, use_reentrant=False)
    wrong |= is_wrong(name, recompute, create_graph)
sys.exit(wrong)

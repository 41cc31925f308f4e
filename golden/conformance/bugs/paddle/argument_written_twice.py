"""recompute(use_reentrant=False): what a function writes to its argument it writes once more in the backward.

The recomputation gets the argument as the forward left it: the gradient belongs to another function than the output, and the
argument is changed twice. With use_reentrant=True it is an error.

severity: silent, wrong gradients and values
versions: paddlepaddle
promise: "The result of the recompute_loss should be the same as the normal_loss" (docstring of recompute)
cause: paddle/distributed/fleet/recompute/recompute.py:517: calls the function again with the arguments themselves; what
    the forward saved of them is not looked at
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, around, double, **options):
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = x * 1
    around(lambda y: double(y) * double(y), y, **options).backward()
    got, expected = (x.grad.item(), y.item()), {written: (64.0, 8.0), copied: (16.0, 2.0)}[double]
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient and argument {got}, expected {expected}")
    return got != expected


def written(y):
    return y.scale_(2.0)


def copied(y):
    return y.scale(2.0)


is_wrong("control: no recompute", lambda function, y: function(y), written)
is_wrong("control: a copy is scaled", recompute, copied, use_reentrant=False)
sys.exit(is_wrong("use_reentrant=False", recompute, written, use_reentrant=False))

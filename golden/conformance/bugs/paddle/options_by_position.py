"""recompute(): keywords that a function takes as **options become further positional arguments.

A function that takes *more beside them, as wrappers do, runs without its options and with arguments that nobody gave: another
output, and no error. One without *more raises a TypeError.

severity: silent, wrong outputs and gradients
versions: paddlepaddle
promise: "**kwargs(Dict): Kwargs should only contain two kinds of key-value params, the one is part of function's key-value
    params" and "Returns: Output of function on args" (docstring of recompute)
cause: paddle/distributed/fleet/recompute/recompute.py:707, recompute: `input_args.extend(arg.values())` for VAR_KEYWORD
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def wrapper(*inputs, **options):
    return layer(*inputs, **options)


def layer(x, y=1.0, scale=1.0):
    return x * y + scale * x * x


def is_wrong(name, around, function=wrapper, **options):
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = around(function, x, scale=10.0, **options)
    y.backward()
    got = (y.item(), x.grad.item())
    print(f"{name}: {'WRONG' if got != (42, 41) else 'right'}: output and gradient {got}, expected (42.0, 41.0)")
    return got != (42, 41)


is_wrong("control: no recompute", lambda function, *given, **named: function(*given, **named))
is_wrong("control: the layer itself", recompute, layer)
is_wrong("control: use_reentrant=False", recompute, use_reentrant=False)
sys.exit(is_wrong("a wrapper", recompute))

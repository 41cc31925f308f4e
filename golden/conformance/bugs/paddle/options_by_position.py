"""recompute(use_reentrant=True, the default): values of **kwargs are passed on as positional arguments.

A function of (x, *more, **options), as wrappers are, gets `scale=10.0` as `more=(10.0,)`: 2 instead of 20, and no error. One
without *more raises a TypeError. Shown on the CPU.

severity: silent, wrong outputs and gradients
versions: paddlepaddle
promise: "**kwargs(Dict): Kwargs should only contain two kinds of key-value params, the one is part of function's key-value
    params" and "Returns: Output of function on args" (docstring of recompute)
cause: paddle/distributed/fleet/recompute/recompute.py:707, recompute: `input_args.extend(arg.values())` for VAR_KEYWORD
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, around, function=lambda x, *more, **o: x * o.get("scale", 1.0), **options):
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = around(function, x, scale=10.0, **options)
    y.backward()
    got = (y.item(), x.grad.item())
    print(f"{name}: {'WRONG' if got != (20, 10) else 'right'}: output and gradient {got}, expected (20.0, 10.0)")
    return got != (20, 10)


is_wrong("control: no recompute", lambda function, *given, **named: function(*given, **named))
is_wrong("control: scale is a parameter", recompute, lambda x, scale=1.0: x * scale)
is_wrong("control: use_reentrant=False", recompute, use_reentrant=False)
sys.exit(is_wrong("use_reentrant=True (default)", recompute))

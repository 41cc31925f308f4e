"""recompute_sequential() with two segments or more unpacks the tensor between them along its first axis.

With a batch of 1 the second segment gets the one row of the tensor, an axis short, and goes on with it: what the layers do with
axes is something else then. With more rows it is an error.

severity: silent, another shape, wrong outputs
versions: paddlepaddle
promise: "Output of function on args and kwargs" (docstring of recompute_sequential)
cause: paddle/distributed/fleet/recompute/recompute.py, recompute_sequential: `args = recompute(...)`, and then `*args`
"""

import sys

import paddle
from paddle.incubate.distributed.fleet import recompute_sequential


def is_wrong(name, layers, segments, expected):
    x = paddle.to_tensor([[2.0, 3.0]], stop_gradient=False)
    got = recompute_sequential({"segments": segments}, layers, x).tolist()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: output {got}, expected {expected}")
    return got != expected


layers = [lambda x: x * x, lambda x: x.sum(0)]
is_wrong("control: one segment", layers, 1, [4.0, 9.0])
is_wrong("control: a list between the segments", [lambda x: [x * x], layers[1]], 2, [4.0, 9.0])
sys.exit(is_wrong("two segments", layers, 2, [4.0, 9.0]))

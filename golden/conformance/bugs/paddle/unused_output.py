"""recompute(): an output that nothing uses makes the gradient NaN where its own derivative is infinite.

A function returns a square root, a norm or a logarithm beside its result, for a log say. The backward takes zeros for the
gradient of what is unused, and zero by infinity is NaN. In the plain run such an output adds nothing.

severity: silent, NaN
versions: paddlepaddle
promise: "The result of the recompute_loss should be the same as the normal_loss" (docstring of recompute); a PyLayer that
    calls set_materialize_grads(False) gets None for such gradients
cause: paddle/distributed/fleet/recompute/recompute.py:361, RecomputeFunction.backward: hands on all of `args`, zeros for
    unused outputs among them
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, around, value=0.0, **options):
    x = paddle.to_tensor([value], stop_gradient=False)
    used, _ = around(lambda x: (x * 2, x.sqrt()), x, **options)
    used.backward()
    got = x.grad.item()
    print(f"{name}: {'WRONG' if got != 2 else 'right'}: gradient {got}, expected 2.0")
    return got != 2


is_wrong("control: no recompute", lambda function, x: function(x))
is_wrong("control: use_reentrant=False", recompute, use_reentrant=False)
is_wrong("control: a derivative that is finite", recompute, 1.0)
sys.exit(is_wrong("a derivative that is infinite", recompute))

"""recompute(): a reentrant segment within one with use_reentrant=False hands no gradient to what is before it.

The hooks of the outer segment give the inner one its input back as a tensor that requires no gradient: the recomputation of the
inner one stops there.

severity: silent, no gradient
versions: paddlepaddle
promise: "'use_reentrant=False' means to use the Hook implementation of recompute" (docstring of recompute), with no word that
    segments within must do so, too; recompute() without the argument is reentrant
cause: paddle/distributed/fleet/recompute/recompute.py, _recompute_without_reentrant: inner_pack hands on new
    tensors, whose stop_gradient is True
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, outer, inner):
    x, weight = paddle.to_tensor([3.0], stop_gradient=False), paddle.to_tensor([1.0], stop_gradient=False)
    outer(lambda x: inner(lambda x: x * x * weight, x) * 1, x).backward()
    got = None if x.grad is None else x.grad.item()
    print(f"{name}: {'WRONG' if got != 6 else 'right'}: gradient {got}, expected 6.0")
    return got != 6


def plain(function, x):
    return function(x)


def by_hooks(function, x):
    return recompute(function, x, use_reentrant=False)


is_wrong("control: the outer one alone", by_hooks, plain)
is_wrong("control: both reentrant", recompute, recompute)
sys.exit(is_wrong("reentrant in use_reentrant=False", by_hooks, recompute))

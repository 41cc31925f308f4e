"""mx.checkpoint: what the function closes over gets zeros for its gradient.

severity: silent, no gradient
versions: mlx
promise: "with respect to the inputs of the callable" (documentation of mx.checkpoint): documented, no bug
cause: mlx/transforms.cpp, checkpoint(): differentiates by the arguments alone
"""

import sys

import mlx.core as mx

x = mx.ones(2)


def is_wrong(name, loss):
    got = mx.grad(loss)(mx.full((2,), 2.0)).tolist()
    print(f"{name}: {'WRONG' if got != [1, 1] else 'right'}: gradient {got}, expected [1.0, 1.0]")
    return got != [1, 1]


is_wrong("control: no checkpoint", lambda w: (x * w).sum())
is_wrong("control: given as an argument", lambda w: mx.checkpoint(lambda x, w: x * w)(x, w).sum())
sys.exit(is_wrong("closed over", lambda w: mx.checkpoint(lambda x: x * w)(x).sum()))

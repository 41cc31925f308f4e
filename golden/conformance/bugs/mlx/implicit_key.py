"""mx.checkpoint: a dropout draws another mask in the backward.

What draws from mx.random.state draws anew in the recomputation: the gradient belongs to another mask than the output, and
the random state moves on twice.

severity: silent, wrong gradients
versions: mlx
promise: none about random numbers in the documentation of mx.checkpoint; without it the gradient has the output's mask
cause: mlx/transforms.cpp, checkpoint(): calls the function again, and keeps no random state
"""

import sys

import mlx.core as mx

x = mx.ones(8)


def masked(x, key=None):
    return x * mx.random.bernoulli(0.5, (8,), key)


def is_wrong(name, around, key=None):
    mx.random.seed(0)
    output, of = mx.vjp(lambda x: around(lambda x: masked(x, key))(x), [x], [mx.ones(8)])
    got, expected = of[0].tolist(), output[0].tolist()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


is_wrong("control: no checkpoint", lambda f: f)
is_wrong("control: an explicit key", mx.checkpoint, mx.random.key(0))
sys.exit(is_wrong("mx.checkpoint", mx.checkpoint))

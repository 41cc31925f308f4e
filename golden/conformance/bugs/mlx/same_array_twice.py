"""mx.checkpoint loses a gradient if the function returns one array twice.

severity: silent, wrong gradients
versions: mlx
promise: none; without mx.checkpoint both gradients are added
cause: mlx/transforms.cpp, vjp(): cotangents are kept by the array that they belong to
"""

import sys

import mlx.core as mx

x = mx.ones(2)


def twice(x):
    y = 3 * x
    return y, y


def copied(x):
    return 3 * x, 3 * x


def is_wrong(name, function):
    def loss(x):
        first, second = function(x)
        return (first + 10 * second).sum()

    got = mx.grad(loss)(x).tolist()
    print(f"{name}: {'WRONG' if got != [33, 33] else 'right'}: gradient {got}, expected [33.0, 33.0]")
    return got != [33, 33]


is_wrong("control: no checkpoint", twice)
is_wrong("control: two arrays", mx.checkpoint(copied))
sys.exit(is_wrong("one array", mx.checkpoint(twice)))

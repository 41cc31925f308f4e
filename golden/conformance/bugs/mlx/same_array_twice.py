"""mx.vjp() loses a cotangent if the function returns one array twice, and mx.checkpoint() with it.

severity: silent, wrong gradients
versions: mlx
promise: none; mx.grad() of the same function without mx.checkpoint() adds both
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
wrong = is_wrong("mx.checkpoint(), one array", mx.checkpoint(twice))
_, (direct,) = mx.vjp(twice, [x], [mx.ones(2), 10 * mx.ones(2)])
print(f"mx.vjp(), one array: {'WRONG' if direct[0].item() != 33 else 'right'}: gradient {direct.tolist()}")
sys.exit(wrong or direct[0].item() != 33)

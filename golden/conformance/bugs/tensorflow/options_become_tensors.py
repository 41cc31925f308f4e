"""tf.recompute_grad: True, False and numbers that are given by position are tensors in the recomputation.

`training is True` and isinstance(n, int) are then false: the gradient belongs to another branch than the output. Where such a
number meets a tensor of another type it is an error instead. keras.remat() on TensorFlow does the same.

severity: silent, wrong gradients
versions: tensorflow, tensorflow-cpu
promise: "recomputes `f` on the backwards pass of a gradient call" (docstring of tf.recompute_grad)
cause: tensorflow/python/ops/custom_gradient.py:721, recompute_grad: `nest.map_structure(gen_array_ops.identity, args)`
"""

import sys

import tensorflow as tf

x = tf.constant(2.0)


def scaled(x, option, of=bool):
    return x * (3.0 if option is True or (of is int and isinstance(option, int)) else 1.0)


def is_wrong(name, around, *given, **named):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = around(scaled)(x, *given, **named)
    got = (float(y), float(tape.gradient(y, x)))
    print(f"{name}: {'WRONG' if got != (6, 3) else 'right'}: output and gradient {got}, expected (6.0, 3.0)")
    return got != (6, 3)


is_wrong("control: no recompute_grad", lambda f: f, True)
is_wrong("control: by keyword", tf.recompute_grad, option=True)
wrong = is_wrong("a flag by position", tf.recompute_grad, True)
wrong |= is_wrong("a number by position", tf.recompute_grad, 2, of=int)
sys.exit(wrong)

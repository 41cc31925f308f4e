"""tf.recompute_grad: tensors that the function closes over, or gets by keyword, have no gradient.

The gradient is None, or lacks the part that goes through the function, without a warning. What is given by position has one,
as have trainable tf.Variables that the function closes over.

severity: silent, no gradient
versions: tensorflow, tensorflow-cpu
promise: none for tensors; the docstring says "function `f(*x)`", and its example trains a tf.Variable that is closed over
cause: tensorflow/python/ops/custom_gradient.py, recompute_grad: differentiates by `id_args` and `variables` alone
"""

import sys

import tensorflow as tf

x = tf.constant([1.0])


def is_wrong(name, loss, make=tf.constant):
    w = make([2.0])
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = loss(w)
    found = tape.gradient(y, w)
    got = None if found is None else found.numpy().tolist()
    print(f"{name}: {'WRONG' if got != [1.0] else 'right'}: gradient {got}, expected [1.0]")
    return got != [1.0]


product = tf.recompute_grad(lambda x, w: x * w)
is_wrong("control: no recompute_grad", lambda w: x * w)
is_wrong("control: by position", lambda w: product(x, w))
is_wrong("control: a tf.Variable", lambda w: tf.recompute_grad(lambda x: x * w)(x), tf.Variable)
wrong = is_wrong("closed over", lambda w: tf.recompute_grad(lambda x: x * w)(x))
wrong |= is_wrong("by keyword", lambda w: product(x, w=w))
sys.exit(wrong)

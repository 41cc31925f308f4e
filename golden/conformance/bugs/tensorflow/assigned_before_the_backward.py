"""tf.recompute_grad: a variable that is assigned to before the backward changes the gradient.

The recomputation reads the variable again, so that the gradient belongs to another function than the output; no error says so. A
tape keeps the value that the forward read. Weights that are stepped, averaged or copied between the two are enough.

severity: silent, wrong gradients
versions: tensorflow, tensorflow-cpu
promise: "With tape checkpointing, only the function call and its inputs are recorded" (docstring of tf.recompute_grad), with no
    word on variables that change until the backward
cause: tensorflow/python/ops/custom_gradient.py:745, recompute_grad: calls `f(*id_args, **kwargs)` again, with the variables as
    they are then
"""

import sys

import tensorflow as tf

x = tf.constant(2.0)


def is_wrong(name, around, value=30.0):
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = around(lambda x: x * v)(x)
    v.assign(value)
    got = float(tape.gradient(y, x))
    print(f"{name}: {'WRONG' if got != 3 else 'right'}: gradient {got}, expected 3.0")
    return got != 3


is_wrong("control: no recompute_grad", lambda f: f)
is_wrong("control: assigned what it was", tf.recompute_grad, 3.0)
sys.exit(is_wrong("recompute_grad", tf.recompute_grad))

"""tf.recompute_grad: a function that changes a tf.Variable, and reads it, is differentiated at another value.

The recomputation reads the variable as the forward left it, and changes it once more: the gradient belongs to another function
than the output, and the variable moves on twice. A spectral norm, or a scale that each step moves, is such a function.

severity: silent, wrong gradients and states
versions: tensorflow, tensorflow-cpu
promise: "This recomputation of the function during backpropagation performs redundant calculation, but reduces the overall
    memory usage of the Tape" (docstring of tf.recompute_grad), with no word on variables that the function assigns to
cause: tensorflow/python/ops/custom_gradient.py, recompute_grad: calls the function again, with no sign that it recomputes
    ("TODO(cdfreeman) Add is_recomputing functionality from graph mode version")
"""

import sys

import tensorflow as tf

x = tf.constant(1.0)


def is_wrong(name, around, step=1.0):
    count = tf.Variable(2.0 - step, trainable=False)

    @around
    def counted(x):
        count.assign_add(step)
        return x * count

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = counted(x)
    got, state = float(tape.gradient(y, x)), float(count)
    wrong = (got, state) != (2.0, 2.0)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got}, expected 2.0; variable {state}, expected 2.0")
    return wrong


is_wrong("control: no recompute_grad", lambda f: f)
is_wrong("control: the variable stays", tf.recompute_grad, step=0.0)
sys.exit(is_wrong("recompute_grad", tf.recompute_grad))

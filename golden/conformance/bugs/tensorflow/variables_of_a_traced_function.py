"""tf.recompute_grad: variables of a tf.function that the function calls train in the first step alone.

recompute_grad learns the variables by seeing them read, in Python. A tf.function reads its variables there only while it is
traced, in its first call: from the second call on their gradient is None, without a warning.

severity: silent, no gradient
versions: tensorflow, tensorflow-cpu
promise: none for a tf.function; the example of the docstring trains a tf.Variable that the function closes over
cause: tensorflow/python/ops/custom_gradient.py, _eager_mode_decorator: a VariableWatcher, which sees no variable of a
    concrete function
"""

import sys

import tensorflow as tf

x = tf.constant(1.0)


def is_wrong(name, around, trace=lambda f: f, reads=False):
    v = tf.Variable(2.0)
    traced, gradients = trace(lambda x: x * v), []
    function = around(lambda x: traced(x) + (v - v if reads else 0.0))
    for _ in range(3):
        with tf.GradientTape() as tape:
            y = function(x)
        found = tape.gradient(y, v)
        gradients.append(None if found is None else float(found))
    wrong = gradients != [1.0] * 3
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradients of three steps {gradients}, expected [1.0, 1.0, 1.0]")
    return wrong


is_wrong("control: no recompute_grad", lambda f: f, tf.function)
is_wrong("control: no tf.function", tf.recompute_grad)
is_wrong("control: the variable is read outside of it, too", tf.recompute_grad, tf.function, reads=True)
sys.exit(is_wrong("recompute_grad and tf.function", tf.recompute_grad, tf.function))

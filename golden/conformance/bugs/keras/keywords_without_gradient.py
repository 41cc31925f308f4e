"""keras.RematScope and keras.remat() on TensorFlow (eager): tensors passed to a layer by keyword get gradient None.

In a custom loop there is no warning; fit(run_eagerly=True) warns that "Gradients do not exist for variables"; fit() as it is,
and a tf.function, raise ValueError. What is passed by position, and the weights of the layer, get gradients. Shown on the CPU.

severity: silent, no gradient
versions: keras, tensorflow, tensorflow-cpu
promise: none about keywords; PyTorch, JAX, and TensorFlow without remat all give the gradient
cause: keras/src/backend/tensorflow/core.py:856, remat(): tf.recompute_grad, which differentiates by positional arguments
    alone; called by keras/src/ops/operation.py:51, Operation.__call__
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

x, y = tf.constant([[2.0]]), tf.constant([[3.0]])


def is_wrong(name, mode, call):
    with keras.RematScope(mode):
        layer = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(2.0))
    with tf.GradientTape() as tape:
        tape.watch(y)
        loss = call(layer)
    found = tape.gradient(loss, y)
    got = None if found is None else found.numpy().item()
    print(f"{name}: {'WRONG' if got != 2 else 'right'}: gradient {got}, expected 2.0")
    return got != 2


is_wrong("control: RematScope(None), by keyword", None, lambda layer: layer(inputs=y))
is_wrong("control: RematScope('full'), by position", "full", lambda layer: layer(y))
wrong = is_wrong("RematScope('full'), by keyword", "full", lambda layer: layer(inputs=y))
sys.exit(wrong | is_wrong("keras.remat(), by keyword", None, lambda _: keras.remat(lambda a, b: a * b)(x, b=y)))

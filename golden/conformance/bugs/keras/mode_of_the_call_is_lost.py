"""keras.RematScope on TensorFlow: layers within a layer are recomputed in evaluation mode.

Layers take their mode from the call that they are part of. In the recomputation that call is over, so a dropout drops nothing
and a batch normalization takes its moving statistics: the gradient belongs to another function than the output. keras.remat()
of a method of a layer, as in its docstring, does the same.

severity: silent, wrong gradients
versions: keras, tensorflow, tensorflow-cpu
promise: "ensuring that during the backward pass, the forward computation is recomputed as needed" (docstring of keras.remat)
cause: keras/src/layers/layer.py, Layer.__call__: its CallContext is not there when the recomputation calls the inner layers
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

x = tf.constant([[1.0], [3.0]])


class Block(keras.Layer):
    def __init__(self, **options):
        super().__init__()
        self.inner, self.options = keras.layers.BatchNormalization(epsilon=1.0), options

    def call(self, x):
        return self.inner(x, **self.options)


def is_wrong(name, mode, **options):
    with keras.RematScope(mode):
        block = Block(**options)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = block(x, training=True)[1]
    # The batch has mean 2 and variance 1: y is (x1 - x0) / 2 / sqrt(variance + 1).
    got, expected = [f"{value:.3f}" for value in tape.gradient(y, x).numpy().flat], ["-0.177", "0.177"]
    print(
        f"{name}: {'WRONG' if got != expected else 'right'}: gradient {', '.join(got)}, expected {', '.join(expected)}"
    )
    return got != expected


is_wrong("control: no scope", None)
is_wrong("control: the inner layer gets its mode by keyword", "full", training=True)
sys.exit(is_wrong("RematScope", "full"))

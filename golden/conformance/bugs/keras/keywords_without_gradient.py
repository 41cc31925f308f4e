"""keras.RematScope on TensorFlow: what a layer gets by keyword has no gradient through it.

An attention that is called as layer(x, value=y) hands no gradient to y, without a warning; y by position gets one.
keras.remat() of a function alike.

severity: silent, no gradient
versions: keras, tensorflow, tensorflow-cpu
promise: none about keywords; keras.layers.MultiHeadAttention names its arguments `query`, `value`, `key`, and on PyTorch and
    without a scope the gradient is there
cause: keras/src/backend/tensorflow/core.py, remat(): tf.recompute_grad, which differentiates by positional arguments alone
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

x, y = tf.constant([[[1.0], [2.0]]]), tf.constant([[[3.0], [5.0]]])


def is_wrong(name, mode, call):
    with keras.RematScope(mode):
        layer = keras.layers.MultiHeadAttention(1, 1, kernel_initializer="ones")
    layer.build(x.shape, y.shape)
    with tf.GradientTape() as tape:
        tape.watch(y)
        loss = tf.reduce_sum(call(layer))
    found = tape.gradient(loss, y)
    got = None if found is None else [f"{value:.2f}" for value in found.numpy().flat]
    wrong = got != ["-0.14", "2.14"]
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got}, expected ['-0.14', '2.14']")
    return wrong


is_wrong("control: no scope", None, lambda layer: layer(x, value=y))
is_wrong("control: by position", "full", lambda layer: layer(x, y))
sys.exit(is_wrong("by keyword", "full", lambda layer: layer(x, value=y)))

"""keras.RematScope on TensorFlow: layers within a layer are recomputed without the mask of the sequence.

The output leaves out what is masked, the gradient belongs to a function that does not: here it is that of a mean over three
steps, where two count. keras.remat() of a function that calls layers does the same.

severity: silent, wrong gradients
versions: keras, tensorflow, tensorflow-cpu
promise: "ensuring that during the backward pass, the forward computation is recomputed as needed" (docstring of keras.remat)
cause: tensorflow/python/ops/custom_gradient.py:721, recompute_grad: hands a copy of each argument to the recomputation; a mask
    is an attribute of the tensor (keras/src/backend/common/masking.py:13), which the copy has not
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

x = tf.constant([[[1.0], [2.0], [0.0]]])


class Block(keras.Layer):
    def __init__(self, **options):
        super().__init__()
        self.inner, self.supports_masking, self.options = keras.layers.GlobalAveragePooling1D(), True, options

    def call(self, x):
        return self.inner(x, **self.options)


def is_wrong(name, mode, **options):
    with keras.RematScope(mode):
        block = Block(**options)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = block(keras.layers.Masking()(x))
    got, expected = [round(float(value), 2) for value in [*y[0], *tape.gradient(y, x)[0, :, 0]]], [1.5, 0.5, 0.5, 0.0]
    print(f"{name}: {'WRONG' if got != expected else 'right'}: output and gradient {got}, expected {expected}")
    return got != expected


is_wrong("control: no scope", None)
is_wrong("control: the inner layer gets the mask by keyword", "full", mask=tf.constant([[True, True, False]]))
sys.exit(is_wrong("RematScope", "full"))

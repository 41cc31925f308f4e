"""keras.RematScope on TensorFlow: a loss that is added within a layer of the scope counts, and has no gradient.

That is so for add_loss() in the call of the layer, and for an activity regularizer of a layer within it. After the backward the
first is there twice, on PyTorch, too.

severity: silent, no gradient of a part of the loss
versions: keras, tensorflow, tensorflow-cpu
promise: "Can be called inside of the `call()` method to add a scalar loss" (docstring of Layer.add_loss); "ensuring that during
    the backward pass, the forward computation is recomputed as needed" (docstring of keras.remat)
cause: tensorflow/python/ops/custom_gradient.py:710, recompute_grad: runs the forward with record.stop_recording(), and a loss is
    none of its outputs; keras/src/layers/layer.py:1283, add_loss: the recomputation appends once more
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

x = tf.constant([[1.0]])


class Penalized(keras.Layer):
    def call(self, x):
        self.add_loss(tf.reduce_sum(x * x))
        return 3 * x


class Block(keras.Layer):
    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(1, kernel_initializer="ones", activity_regularizer=keras.regularizers.L2(1.0))

    def call(self, x):
        return 3 * self.inner(x)


def is_wrong(name, mode, make, plus):
    with keras.RematScope(mode):
        layer = make()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x) + plus(layer)
    got = (float(tape.gradient(y, x)[0, 0]), len(layer.losses))
    print(f"{name}: {'WRONG' if got != (5, 1) else 'right'}: gradient and number of losses {got}, expected (5.0, 1)")
    return got != (5, 1)


wrong = False
for make in (Penalized, Block):
    is_wrong(f"control: {make.__name__}, no scope", None, make, lambda layer: sum(layer.losses))
    wrong |= is_wrong(f"{make.__name__}, RematScope", "full", make, lambda layer: sum(layer.losses))
sys.exit(wrong)

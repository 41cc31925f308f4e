"""keras.remat() of SpectralNormalization: the gradient belongs to another function than the output.

In training the layer replaces its kernel by the normalized one, and moves a vector on. The recomputation normalizes the
normalized kernel once more, and moves both on again: the weights after a step are others, too. On
PyTorch alike.

severity: silent, wrong gradients and weights
versions: keras, tensorflow, tensorflow-cpu
promise: "ensuring that during the backward pass, the forward computation is recomputed as needed" (docstring of keras.remat)
cause: keras/src/backend/tensorflow/core.py, remat(): runs what assigns to variables again, on the variables as they then are
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

x = tf.constant([[1.0, 2.0]])


def step(around, training):
    keras.utils.set_random_seed(0)
    layer = keras.layers.SpectralNormalization(keras.layers.Dense(2))
    layer.build(x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = around(lambda x: layer(x, training=training))(x)
    return [f"{value:.4f}" for tensor in (tape.gradient(y, x), layer.vector_u) for value in tensor.numpy().flat]


def is_wrong(name, around, training=True):
    got, expected = step(around, training), step(lambda f: f, training)
    print(
        f"{name}: {'WRONG' if got != expected else 'right'}: gradient and vector {', '.join(got)}, expected {', '.join(expected)}"
    )
    return got != expected


is_wrong("control: no remat", lambda f: f)
is_wrong("control: not in training", keras.remat, training=False)
sys.exit(is_wrong("remat", keras.remat))

"""What Keras must keep in a `RematScope` and no case can say.

`checkpoint` is `keras.remat` or changes nothing; a layer is made in a scope of the same kind.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

GRADIENTS = {
    "tensorflow": """
def gradient(call, x):
    import tensorflow as tf

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(x)
    return np.array(tape.gradient(y, x), np.float32)
""",
    "torch": """
def gradient(call, x):
    import torch

    x = torch.tensor(x, requires_grad=True)
    call(x).sum().backward()
    return np.array(x.grad, np.float32)
""",
}
GRADIENT = (
    GRADIENTS[keras.backend.backend()]
    + """

def made(checkpoint, make, mode="full"):
    with keras.RematScope(None if checkpoint(made) is made else mode):
        return make()


class Block(keras.layers.Layer):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x):
        return self.layer(x)


class Counting(keras.layers.Layer):
    runs = 0

    def call(self, x):
        self.runs += 1
        return x * 1

    def compute_output_shape(self, shape):
        return shape
"""
)
exec(GRADIENT, globals())
gradient, made, Block, Counting = (
    globals()[name] for name in ("gradient", "made", "Block", "Counting")
)


def input_by_keyword(checkpoint: Any) -> Any:
    """A layer's input that is given by keyword gets its gradient."""
    keras.utils.set_random_seed(0)
    layer = made(checkpoint, lambda: keras.layers.Dense(2))
    return gradient(lambda x: layer(inputs=x), np.ones((1, 2), np.float32))


def value_by_keyword(checkpoint: Any) -> Any:
    """Attention whose value is given by keyword gets the gradient of both."""
    keras.utils.set_random_seed(0)
    layer = made(checkpoint, lambda: keras.layers.MultiHeadAttention(1, 2))
    return gradient(lambda x: layer(x, value=x), np.ones((1, 2, 2), np.float32))


def mask_of_a_sequence(checkpoint: Any) -> Any:
    """A layer within a layer sees the mask of its input in the recomputation, too."""
    keras.utils.set_random_seed(0)
    layer = made(checkpoint, lambda: Block(keras.layers.LSTM(2)))
    masked = keras.layers.Masking()
    return gradient(lambda x: layer(masked(x)), np.array([[[1, 2], [3, 5], [0, 0]]], np.float32))


def mode_of_the_call(checkpoint: Any) -> Any:
    """A layer within a layer is recomputed in the mode of its call."""
    layer = made(checkpoint, lambda: Block(keras.layers.BatchNormalization()))
    x = np.array([[1, 2], [3, 5], [8, 4]], np.float32)
    return gradient(lambda x: layer(x, training=True) ** 2, x)


def mixed_bfloat16(checkpoint: Any) -> Any:
    """A layer of mixed precision is recomputed in the precision of its call."""
    keras.utils.set_random_seed(0)
    layer = made(checkpoint, lambda: keras.layers.Dense(2, dtype="mixed_bfloat16"))
    x = np.array([[1, 2], [3, 5]], np.float32)
    return gradient(lambda x: keras.ops.cast(layer(x), "float32") ** 2, x)


def mixed_float16(checkpoint: Any) -> Any:
    """A layer of half precision is recomputed in the precision of its call."""
    keras.utils.set_random_seed(0)
    layer = made(checkpoint, lambda: keras.layers.Dense(2, dtype="mixed_float16"))
    x = np.array([[1, 2], [3, 5]], np.float32)
    return gradient(lambda x: keras.ops.cast(layer(x), "float32") ** 2, x)


def activations_of_lstm(checkpoint: Any) -> Any:
    """The mode "activations" takes any layer that has an activation."""
    keras.utils.set_random_seed(0)
    layer = made(checkpoint, lambda: keras.layers.LSTM(2), "activations")
    return gradient(layer, np.ones((1, 3, 2), np.float32))


def small_outputs_are_kept(checkpoint: Any) -> Any:
    """The mode "larger_than" recomputes no layer whose outputs are smaller."""
    layer = made(checkpoint, Counting, "larger_than")
    gradient(layer, np.ones((1, 2), np.float32))
    return layer.runs


def fits_a_model(checkpoint: Any) -> Any:
    """A model that is made in a scope trains by fit()."""
    keras.utils.set_random_seed(0)
    shape = [keras.layers.Input((2,)), keras.layers.Dense(2), keras.layers.BatchNormalization()]
    model = made(checkpoint, lambda: keras.Sequential(shape))
    model.compile("sgd", "mse")
    rows = np.ones((4, 2), np.float32)
    model.fit(rows, rows, verbose=0)
    return model.layers[0].get_weights()[0]


PROMISES = (
    input_by_keyword,
    value_by_keyword,
    mask_of_a_sequence,
    mode_of_the_call,
    mixed_bfloat16,
    mixed_float16,
    activations_of_lstm,
    small_outputs_are_kept,
    fits_a_model,
)

"""keras.remat(): a dropout draws another mask in the backward, on TensorFlow and on PyTorch.

The mask comes from a SeedGenerator, whose state is a variable that each draw moves on. The recomputation takes the state as the
forward left it: the gradient belongs to another mask than the output, and the seeds of later steps are others.

severity: silent, wrong gradients
versions: keras, tensorflow, tensorflow-cpu
promise: "ensuring that during the backward pass, the forward computation is recomputed as needed" (docstring of keras.remat)
cause: keras/src/backend/tensorflow/core.py and torch/core.py, remat(): keep no state of a SeedGenerator
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

x = tf.ones(8)


def is_wrong(name, around, seed):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = around(lambda x: keras.random.dropout(x, 0.5, seed=seed))(x)
    got, expected = tape.gradient(y, x).numpy().tolist(), y.numpy().tolist()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


is_wrong("control: no remat", lambda f: f, keras.random.SeedGenerator(0))
is_wrong("control: a fixed seed", keras.remat, 0)
sys.exit(is_wrong("remat", keras.remat, keras.random.SeedGenerator(0)))

"""tf.recompute_grad: a dropout draws another mask in the backward.

What draws from random state, tf.nn.dropout or a tf.random.Generator, draws anew in the recomputation: the gradient belongs to
another mask than the output, and the random state moves on twice. Only stateless operators draw the same.

severity: silent, wrong gradients
versions: tensorflow, tensorflow-cpu
promise: "This recomputation of the function during backpropagation performs redundant calculation, but reduces the overall
    memory usage of the Tape" (docstring of tf.recompute_grad), with no warning about what draws
cause: tensorflow/python/ops/custom_gradient.py, recompute_grad: calls the function again, and keeps no random state
"""

import sys

import tensorflow as tf

x, generator = tf.ones(8), tf.random.Generator.from_seed(0)


def dropout(x):
    return tf.nn.dropout(x, 0.5)


def is_wrong(name, function):
    tf.random.set_seed(0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    got, expected = tape.gradient(y, x).numpy().tolist(), y.numpy().tolist()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


def stateless(x):
    return tf.nn.experimental.stateless_dropout(x, 0.5, [1, 2])


is_wrong("control: no recompute_grad", dropout)
is_wrong("control: stateless_dropout", tf.recompute_grad(stateless))
wrong = is_wrong("tf.nn.dropout", tf.recompute_grad(dropout))
wrong |= is_wrong("tf.random.Generator", tf.recompute_grad(lambda x: x * tf.round(generator.uniform([8]))))
sys.exit(wrong)

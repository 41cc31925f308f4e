"""tf.recompute_grad: tensors and tf.Variables given by keyword get no gradient (eager); nor do tensors closed over.

In eager mode the gradient of a keyword is None, or lacks the part that goes through the function, without a warning; in a
tf.function a keyword raises ValueError. A tensor that is closed over gets None in both modes. Positional tensors, and
trainable tf.Variables that are closed over, do get gradients. Shown on the CPU.

severity: silent, no gradient
versions: tensorflow, tensorflow-cpu
promise: the docstring promises `f(*x)` only; `inner` accepts **kwargs, and graph mode rejects them
cause: tensorflow/python/ops/custom_gradient.py:564-565, _eager_mode_decorator: records `flat_args + list(variables)`, and
    `flat_kwargs` (:542) never; a closure: recompute_grad:751 differentiates by `list(id_args) + kw_vars`; ValueError: :405-408
"""

import sys

import tensorflow as tf

x = tf.constant([1.0])


def is_wrong(name, loss, make=tf.constant, expected=1):
    w = make([2.0])
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = loss(w)
    found = tape.gradient(y, w)
    got = None if found is None else found.numpy().item()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


product = tf.recompute_grad(lambda x, w: x * w)
is_wrong("control: no recompute_grad", lambda w: x * w)
is_wrong("control: by position", lambda w: product(x, w))
is_wrong("control: a tf.Variable, closed over", lambda w: tf.recompute_grad(lambda x: x * w)(x), tf.Variable)
wrong = is_wrong("by keyword", lambda w: product(x, w=w))
wrong |= is_wrong("a tf.Variable, by keyword", lambda w: product(x, w=w), tf.Variable)
wrong |= is_wrong("by keyword, and beside it", lambda w: w + product(x, w=w), expected=2)
wrong |= is_wrong("closed over", lambda w: tf.recompute_grad(lambda x: x * w)(x))
sys.exit(wrong)

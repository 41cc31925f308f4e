"""Promises that users of `tf.recompute_grad()` rely on: what it takes and returns."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rematch.subjects.promises import promises_in
from rematch.subjects.promises_of_any import of_any


def gradient(objective: Callable[..., Any], *by: Any) -> Any:
    """The gradient of `objective(*by)` with respect to `by`: a list if there are several."""
    with tf.GradientTape() as tape:
        tape.watch(by)
        y = objective(*by)
    found = tape.gradient(y, by)
    return found[0] if len(by) == 1 else list(found)


def gradients(objective: Callable[..., Any], *numbers: Any) -> Any:
    """The gradients with respect to numbers."""
    found = gradient(lambda by: objective(*by), [tf.constant(number) for number in numbers])
    return [None if g is None else float(g) for g in found]


def keyword_option(checkpoint):
    """A keyword may be an option, as `training` is."""
    return gradient(
        lambda x: checkpoint(lambda x, training: x * x if training else x)(x, training=True), tf.constant(2.0)
    )


def closed_over_tensor(checkpoint):
    """A tensor that a function closes over gets its gradient."""

    def loss(x):
        square = x * x
        return checkpoint(lambda x: x * square)(x)

    return gradient(loss, tf.constant(2.0))


def closed_over_variable(checkpoint):
    """A variable that a function closes over gets its gradient."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    return gradient(lambda x, v: checkpoint(lambda x: x * v * v)(x), x, v)


def variables_alone(checkpoint):
    """A function may have no arguments, and train what it closes over."""
    return gradient(lambda v: checkpoint(lambda: v * v)(), tf.Variable(3.0))


def untrainable_variable(checkpoint):
    """A variable that is watched by hand gets its gradient, trainable or not."""
    return gradient(lambda v: checkpoint(lambda x: x * v * v)(tf.constant(2.0)), tf.Variable(3.0, trainable=False))


def variable_argument(checkpoint):
    """A variable may be an argument, and gets its gradient."""
    return gradient(lambda v: checkpoint(lambda v: v * v)(v), tf.Variable(3.0))


def variable_argument_stays_one(checkpoint):
    """A variable that is an argument may be assigned to."""
    v, x = tf.Variable(3.0), tf.constant(2.0)

    def counted(x, v):
        v.assign_add(1.0)
        return x * x

    return gradient(lambda x: checkpoint(counted)(x, v), x)


def number_that_counts(checkpoint):
    """A number that is an argument may say how often a loop of Python runs."""
    x = tf.constant(2.0)

    def power(x, n):
        y = x
        for _ in range(n - 1):
            y = y * x
        return y

    return gradient(lambda x: checkpoint(power)(x, 3), x)


def flag_argument(checkpoint):
    """An argument may be True or False."""
    return gradient(lambda x: checkpoint(lambda x, training: x * x if training else x)(x, True), tf.constant(2.0))


def integer_argument(checkpoint):
    """A function may take integers, the tokens of an embedding for example."""
    table = tf.Variable([[1.0], [2.0], [3.0]])
    look_up = checkpoint(lambda i: tf.gather(table, i) ** 2)
    return tf.convert_to_tensor(gradient(lambda table: look_up(tf.constant([2, 0, 2])), table))


def sparse_gradient(checkpoint):
    """The gradient of an embedding stays sparse."""
    table = tf.Variable([[1.0], [2.0], [3.0]])
    look_up = checkpoint(lambda i: tf.gather(table, i))
    return [isinstance(gradient(lambda table: look_up(tf.constant([2])), table), tf.IndexedSlices)]


def tuple_argument(checkpoint):
    """Tensors in a tuple get their gradients."""
    return gradient(lambda x: checkpoint(lambda pair: pair[0] * pair[1])((x, x * x)), tf.constant(2.0))


def integer_returned(checkpoint):
    """A function may return integers beside its result."""
    return gradient(lambda x: checkpoint(lambda x: (x * x, tf.argmax(x)))(x)[0], tf.constant([2.0, 3.0]))


SHARED = "keyword_tensor none_argument number_argument dictionary_argument dictionary_returned none_returned "
SHARED += "same_argument_twice returns_same_twice"
PROMISES = (*promises_in(globals()), *of_any(SHARED))

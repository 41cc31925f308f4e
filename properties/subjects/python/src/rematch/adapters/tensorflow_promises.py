"""What `tf.recompute_grad()` must keep and no case can say."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def keyword_argument(checkpoint: Any) -> Any:
    """A tensor that is given by keyword gets its gradient."""
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: tf.tanh(x))(x=x)
    return tape.gradient(y, x).numpy()


def variable_given_and_closed_over(checkpoint: Any) -> Any:
    """A variable that is an argument, and closed over as well, gets both gradients."""
    v = tf.Variable([2.0, 3.0])
    with tf.GradientTape() as tape:
        y = checkpoint(lambda w: w * v)(v)
    return tape.gradient(y, v).numpy()


def integer_argument(checkpoint: Any) -> Any:
    """A Python integer is the same argument in the recomputation."""
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x, n: x**n)(x, 3)
    return tape.gradient(y, x).numpy()


def none_argument(checkpoint: Any) -> Any:
    """An optional argument may be None."""
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x, mask: x * x if mask is None else x * mask)(x, None)
    return tape.gradient(y, x).numpy()


def changed_variable(checkpoint: Any) -> Any:
    """A variable that changes before the backward counts with its value in the forward."""
    x, v = tf.constant([1.0, 2.0]), tf.Variable([2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * v)(x)
    v.assign([20.0, 30.0])
    return tape.gradient(y, x).numpy()


def second_derivative(checkpoint: Any) -> Any:
    """What a variable contributes can be differentiated twice."""
    v = tf.Variable([2.0, 3.0])
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: (x * v) ** 3)(tf.constant([1.0, 2.0]))
        first = tape.gradient(y, v)
    return outer.gradient(first, v).numpy()


def boolean_in_function(checkpoint: Any) -> Any:
    """A tensor of booleans may be an argument within tf.function."""

    @tf.function
    def step(x: Any, mask: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x, mask: tf.where(mask, x * x, x))(x, mask)
        return tape.gradient(y, x)

    return step(tf.constant([1.0, 2.0]), tf.constant([True, False])).numpy()


def keyword_in_function(checkpoint: Any) -> Any:
    """Within tf.function, an argument may be given by keyword."""

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x, training: tf.tanh(x))(x, training=True)
        return tape.gradient(y, x)

    return step(tf.constant([1.0, 2.0])).numpy()


def dropout_in_function(checkpoint: Any) -> Any:
    """Within tf.function, the gradient of an unseeded dropout belongs to its own mask."""

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: tf.nn.dropout(x, 0.5))(x)
        return y - tape.gradient(y, x)

    tf.random.set_seed(0)
    return step(tf.ones([64])).numpy()


def loop_in_function(checkpoint: Any) -> Any:
    """Within tf.function, a loop may call it."""
    v = tf.Variable([2.0, 3.0])

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = checkpoint(lambda x: tf.tanh(x * v))(y)
        return tape.gradient(y, x)

    return step(tf.constant([0.1, 0.2])).numpy()


PROMISES = (
    keyword_argument,
    variable_given_and_closed_over,
    integer_argument,
    none_argument,
    changed_variable,
    second_derivative,
    boolean_in_function,
    keyword_in_function,
    dropout_in_function,
    loop_in_function,
)

"""What users of `tf.recompute_grad()` rely on beside equal gradients of float tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def keyword_tensor(checkpoint: Callable[..., Any]) -> Any:
    """A tensor that is given by keyword gets its gradient."""
    x, w = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = checkpoint(lambda x, w: x * w * w)(x, w=w)
    return [None if g is None else float(g) for g in tape.gradient(y, [x, w])]


def keyword_option(checkpoint: Callable[..., Any]) -> Any:
    """A keyword may be an option, as `training` is."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x, training: x * x if training else x)(x, training=True)
    return tape.gradient(y, x)


def keyword_option_in_function(checkpoint: Callable[..., Any]) -> Any:
    """A keyword may be an option also in a tf.function."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x, training: x * x if training else x)(x, training=True)
        return tape.gradient(y, x)

    return step(tf.constant(2.0))


def closed_over_tensor(checkpoint: Callable[..., Any]) -> Any:
    """A tensor that a function closes over gets its gradient."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        square = x * x
        y = checkpoint(lambda x: x * square)(x)
    return tape.gradient(y, x)


def closed_over_variable(checkpoint: Callable[..., Any]) -> Any:
    """A variable that a function closes over gets its gradient."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * v * v)(x)
    return [float(g) for g in tape.gradient(y, [x, v])]


def variables_alone(checkpoint: Callable[..., Any]) -> Any:
    """A function may have no arguments, and train what it closes over."""
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = checkpoint(lambda: v * v)()
    return tape.gradient(y, v)


def untrainable_variable(checkpoint: Callable[..., Any]) -> Any:
    """A variable that is watched by hand gets its gradient, trainable or not."""
    v = tf.Variable(3.0, trainable=False)
    with tf.GradientTape() as tape:
        tape.watch(v)
        y = checkpoint(lambda x: x * v * v)(tf.constant(2.0))
    return tape.gradient(y, v)


def variable_argument(checkpoint: Callable[..., Any]) -> Any:
    """A variable may be an argument, and gets its gradient."""
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = checkpoint(lambda v: v * v)(v)
    return tape.gradient(y, v)


def variable_argument_stays_one(checkpoint: Callable[..., Any]) -> Any:
    """A variable that is an argument may be assigned to."""
    v, x = tf.Variable(3.0), tf.constant(2.0)

    def counted(x, v):
        v.assign_add(1.0)
        return x * x

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(counted)(x, v)
    return tape.gradient(y, x)


def number_argument(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be a number of Python."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x, n: x**n)(x, 3)
    return tape.gradient(y, x)


def number_that_counts(checkpoint: Callable[..., Any]) -> Any:
    """A number that is an argument may say how often a loop of Python runs."""
    x = tf.constant(2.0)

    def power(x, n):
        y = x
        for _ in range(n - 1):
            y = y * x
        return y

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(power)(x, 3)
    return tape.gradient(y, x)


def number_that_counts_in_function(checkpoint: Callable[..., Any]) -> Any:
    """A number that is an argument may say how often a loop runs, also in a tf.function."""

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x, n: x * sum(x for _ in range(n)))(x, 3)
        return tape.gradient(y, x)

    return step(tf.constant(2.0))


def flag_argument(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be True or False."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x, training: x * x if training else x)(x, True)
    return tape.gradient(y, x)


def flag_argument_in_function(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be True or False, also in a tf.function."""

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x, training: x * x if training else x)(x, True)
        return tape.gradient(y, x)

    return step(tf.constant(2.0))


def mask_argument_in_function(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be a mask of booleans, also in a tf.function."""

    @tf.function(autograph=False)
    def step(x, mask):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x, mask: tf.where(mask, x * x, x))(x, mask)
        return tape.gradient(y, x)

    return step(tf.constant([2.0, 3.0]), tf.constant([True, False]))


def none_argument(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be None, as a mask that there is not."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x, mask: x * x if mask is None else x)(x, None)
    return tape.gradient(y, x)


def integer_argument(checkpoint: Callable[..., Any]) -> Any:
    """A function may take integers, the tokens of an embedding for example."""
    table = tf.Variable([[1.0], [2.0], [3.0]])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(checkpoint(lambda i: tf.gather(table, i) ** 2)(tf.constant([2, 0, 2])))
    return tf.convert_to_tensor(tape.gradient(y, table))


def integer_argument_in_function(checkpoint: Callable[..., Any]) -> Any:
    """A function may take integers, also in a tf.function."""
    table = tf.Variable([[1.0], [2.0], [3.0]])

    @tf.function
    def step(tokens):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(checkpoint(lambda i: tf.gather(table, i) ** 2)(tokens))
        return tf.convert_to_tensor(tape.gradient(y, table))

    return step(tf.constant([2, 0, 2]))


def sparse_gradient(checkpoint: Callable[..., Any]) -> Any:
    """The gradient of an embedding stays sparse."""
    table = tf.Variable([[1.0], [2.0], [3.0]])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(checkpoint(lambda i: tf.gather(table, i))(tf.constant([2])))
    return [isinstance(tape.gradient(y, table), tf.IndexedSlices)]


def tuple_argument(checkpoint: Callable[..., Any]) -> Any:
    """Tensors in a tuple get their gradients."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda pair: pair[0] * pair[1])((x, x * x))
    return tape.gradient(y, x)


def dictionary_argument(checkpoint: Callable[..., Any]) -> Any:
    """Tensors in a dictionary get their gradients."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda named: named["a"] * named["b"])({"a": x, "b": x * x})
    return tape.gradient(y, x)


def dictionary_returned(checkpoint: Callable[..., Any]) -> Any:
    """A function may return a dictionary of tensors."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        made = checkpoint(lambda x: {"a": x * x, "b": x})(x)
        y = made["a"] * made["b"]
    return tape.gradient(y, x)


def none_returned(checkpoint: Callable[..., Any]) -> Any:
    """A function may return None beside a tensor."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, none = checkpoint(lambda x: (x * x, None))(x)
    return [float(tape.gradient(y, x)), none is None]


def integer_returned(checkpoint: Callable[..., Any]) -> Any:
    """A function may return integers beside its result."""
    x = tf.constant([2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, _ = checkpoint(lambda x: (x * x, tf.argmax(x)))(x)
    return tape.gradient(y, x)


def same_argument_twice(checkpoint: Callable[..., Any]) -> Any:
    """A tensor given twice gets the sum of both gradients."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda a, b: a * b * b)(x, x)
    return tape.gradient(y, x)


def returns_same_twice(checkpoint: Callable[..., Any]) -> Any:
    """A function may return one tensor twice, or its argument; all gradients count."""
    x = tf.constant(2.0)

    def several(x):
        y = x * x
        return y, y, x

    with tf.GradientTape() as tape:
        tape.watch(x)
        a, b, c = checkpoint(several)(x)
        y = 2 * a + 5 * b + 7 * c
    return tape.gradient(y, x)


def unused_argument(checkpoint: Callable[..., Any]) -> Any:
    """An argument that nothing uses has no gradient."""
    x, w = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = checkpoint(lambda x, w: x * x)(x, w)
    return [tape.gradient(y, w) is None]


def unused_output(checkpoint: Callable[..., Any]) -> Any:
    """An output that nothing uses adds nothing, even where its gradient is no number."""
    x = tf.constant(0.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, _ = checkpoint(lambda x: (x * 2, tf.sqrt(x)))(x)
    return tape.gradient(y, x)


def second_derivative(checkpoint: Callable[..., Any]) -> Any:
    """The gradient of a gradient is right."""
    x = tf.constant(2.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: x * x * x)(x)
        slope = tape.gradient(y, x)
    return outer.gradient(slope, x)


def second_derivative_by_variable(checkpoint: Callable[..., Any]) -> Any:
    """The gradient of a gradient by a variable is right."""
    v = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: x * v * v * v)(tf.constant(1.0))
        slope = tape.gradient(y, v)
    return outer.gradient(slope, v)


def gradient_penalty(checkpoint: Callable[..., Any]) -> Any:
    """A gradient by the input is differentiated by a variable."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: x * x * v * v)(x)
        slope = tape.gradient(y, x)
    return outer.gradient(slope, v)


def forward_derivative(checkpoint: Callable[..., Any]) -> Any:
    """A tf.autodiff.ForwardAccumulator goes through a function."""
    x = tf.constant(2.0)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)) as accumulator:
        y = checkpoint(lambda x: x * x * x)(x)
    return accumulator.jvp(y)


def persistent_tape(checkpoint: Callable[..., Any]) -> Any:
    """A persistent tape differentiates a function twice."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * x * v)(x)
    return [float(tape.gradient(y, x)), float(tape.gradient(y, v)), float(tape.gradient(y, x))]


def jacobian(checkpoint: Callable[..., Any]) -> Any:
    """tape.jacobian() goes through a function."""
    x = tf.constant([2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * tf.reduce_sum(x))(x)
    return tape.jacobian(y, x)


def stop_recording(checkpoint: Callable[..., Any]) -> Any:
    """What a function computes while its tape is stopped is constant."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tape.stop_recording():
            y = checkpoint(lambda x: x * x)(x)
        z = x * y
    return tape.gradient(z, x)


def stopped_inside(checkpoint: Callable[..., Any]) -> Any:
    """A function may stop the tape around it for a part."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)

        def half(x):
            with tape.stop_recording():
                constant = x * x
            return constant * x

        y = checkpoint(half)(x)
    return tape.gradient(y, x)


def drawn_with_seed(checkpoint: Callable[..., Any]) -> Any:
    """An op with a seed draws the same in the recomputation."""
    tf.random.set_seed(3)
    x, seen = tf.constant(2.0), []

    def noisy(x):
        seen.append(float(tf.random.uniform([], seed=5)))
        return x * x * seen[-1]

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(noisy)(x)
    tape.gradient(y, x)
    return [seen[0] == seen[-1]]


def drawn_in_function(checkpoint: Callable[..., Any]) -> Any:
    """In a tf.function, gradients belong to what the forward drew."""
    tf.random.set_seed(3)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: tf.nn.dropout(x, 0.5, seed=5))(x)
        return y, tape.gradient(y, x)

    y, gradient = step(tf.ones([64]))
    return [bool(tf.reduce_all(y == gradient))]


def counted(checkpoint: Callable[..., Any]) -> Any:
    """What a function assigns to a variable is assigned once."""
    x, v = tf.constant(2.0), tf.Variable(0.0, trainable=False)

    def count(x):
        v.assign_add(1.0)
        return x * x

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(count)(x)
    tape.gradient(y, x)
    return v.numpy()


def assigned_before_the_backward(checkpoint: Callable[..., Any]) -> Any:
    """A variable that is assigned to before the backward has the gradient of the forward."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * v)(x)
    v.assign(30.0)
    return tape.gradient(y, x)


def variables_made_inside(checkpoint: Callable[..., Any]) -> Any:
    """A layer may make its variables in the first call, and they train."""
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
    x = tf.ones([1, 2])
    with tf.GradientTape() as tape:
        y = checkpoint(lambda x: layer(x) ** 2)(x)
    return tape.gradient(y, layer.kernel.value)


def variables_made_in_function(checkpoint: Callable[..., Any]) -> Any:
    """A layer may make its variables in the first call, also in a tf.function."""
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: layer(x) ** 2)(x)
        return tape.gradient(y, layer.trainable_variables[0].value)

    return step(tf.ones([1, 2]))


def model(checkpoint: Callable[..., Any]) -> Any:
    """A model of Keras may be checkpointed as it is, and trains."""
    made = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
    made.build([1, 2])
    x = tf.ones([1, 2])
    with tf.GradientTape() as tape:
        y = checkpoint(made)(x) ** 2
    return tape.gradient(y, made.trainable_variables[0].value)


def dense_in_half(checkpoint: Callable[..., Any]) -> Any:
    """A layer of mixed precision has gradients of float32."""
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones", dtype="mixed_bfloat16")
    layer.build([1, 2])
    with tf.GradientTape() as tape:
        y = checkpoint(lambda x: layer(x) ** 2)(tf.ones([1, 2]))
    gradient = tape.gradient(y, layer.kernel.value)
    return [gradient.dtype == tf.float32, *gradient.numpy().ravel().tolist()]


def nested(checkpoint: Callable[..., Any]) -> Any:
    """A checkpointed function may call another, and all variables train."""
    v, w = tf.Variable(2.0), tf.Variable(3.0)
    inner = checkpoint(lambda x: x * x * v)
    with tf.GradientTape() as tape:
        y = checkpoint(lambda x: inner(x) * w)(tf.constant(2.0))
    return [float(g) for g in tape.gradient(y, [v, w])]


def function_inside(checkpoint: Callable[..., Any]) -> Any:
    """Variables of a tf.function that a function calls train, also in the second step."""
    v = tf.Variable(3.0)
    traced, gradients = tf.function(lambda x: x * v * v), []
    for _ in range(2):
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: traced(x))(tf.constant(2.0))
        gradient = tape.gradient(y, v)
        gradients.append(None if gradient is None else float(gradient))
    return gradients


def function_itself(checkpoint: Callable[..., Any]) -> Any:
    """A tf.function may be checkpointed as it is."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(tf.function(lambda x: x * x * x))(x)
    return tape.gradient(y, x)


def around_of_functions(checkpoint: Callable[..., Any]) -> Any:
    """A checkpointed function may be a tf.function."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    made = tf.function(checkpoint(lambda x: x * x * v))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = made(x)
    return [float(g) for g in tape.gradient(y, [x, v])]


def traced_once(checkpoint: Callable[..., Any]) -> Any:
    """A tf.function is not traced again for each step."""
    traces, v = [], tf.Variable(3.0)

    @tf.function
    def step(x):
        traces.append(1)
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: x * v * v)(x)
        return tape.gradient(y, v)

    return [*[float(step(tf.constant(float(i)))) for i in range(3)], len(traces)]


def compiled(checkpoint: Callable[..., Any]) -> Any:
    """A step may be compiled by XLA."""
    v = tf.Variable(3.0)

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: x * x * v)(x)
        return tape.gradient(y, [x, v])

    return [float(g) for g in step(tf.constant(2.0))]


def mapped(checkpoint: Callable[..., Any]) -> Any:
    """A function may be mapped over rows."""
    x, v = tf.constant([[1.0], [2.0]]), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = tf.map_fn(checkpoint(lambda row: row * row * v), x)
    return tape.gradient(y, v)


def vectorized(checkpoint: Callable[..., Any]) -> Any:
    """A function may be vectorized."""
    x, v = tf.constant([[1.0], [2.0]]), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = tf.vectorized_map(checkpoint(lambda row: row * row * v), x)
    return tape.gradient(y, v)


def in_loop(checkpoint: Callable[..., Any]) -> Any:
    """A function may run in a loop of a tf.function."""
    v = tf.Variable(3.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for _ in tf.range(3):
                y = checkpoint(lambda y: y * v)(y)
        return tape.gradient(y, v)

    return step(tf.constant(1.0))


def loop_over_tensors(checkpoint: Callable[..., Any]) -> Any:
    """A function of arguments alone may run in a loop of a tf.function."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = checkpoint(lambda y: y * y)(y)
        return tape.gradient(y, x)

    return step(tf.constant(2.0))


def mapped_in_function(checkpoint: Callable[..., Any]) -> Any:
    """A function may be mapped over rows in a tf.function."""
    v = tf.Variable(3.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.map_fn(checkpoint(lambda row: row * row * v), x)
        return tape.gradient(y, v)

    return step(tf.constant([[1.0], [2.0]]))


def loop_inside(checkpoint: Callable[..., Any]) -> Any:
    """A loop may run within a function, also in a tf.function."""
    v = tf.Variable(3.0)

    def power(x):
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * v), [0, x])[1]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = checkpoint(power)(x)
        return tape.gradient(y, v)

    return step(tf.constant(1.0))


def in_condition(checkpoint: Callable[..., Any]) -> Any:
    """A function may run in a branch of a tf.function."""
    v = tf.Variable(3.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.cond(x > 0, lambda: checkpoint(lambda x: x * v * v)(x), lambda: x)
        return tape.gradient(y, v)

    return step(tf.constant(1.0))


def error_passes(checkpoint: Callable[..., Any]) -> Any:
    """An error comes through as it is, and the tape still records."""
    x = tf.constant(2.0)

    def fails(x):
        raise KeyError("mine")

    with tf.GradientTape() as tape:
        tape.watch(x)
        try:
            checkpoint(fails)(x)
        except KeyError as error:
            said = str(error) == "'mine'"
        y = x * x
    return [said, float(tape.gradient(y, x))]


def not_a_number(checkpoint: Callable[..., Any]) -> Any:
    """A gradient that is no number for one element leaves the others as they are."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: x * x)(x)
            z = y * tf.constant([float("nan"), 1.0])
        return tf.math.is_nan(tape.gradient(z, x))

    return step(tf.constant([2.0, 3.0]))


def infinite(checkpoint: Callable[..., Any]) -> Any:
    """A gradient that overflows is infinite, as a loss scale relies on."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: x * x)(x)
            z = y * tf.constant([float("inf"), 1.0])
        return tape.gradient(z, x)

    return step(tf.constant([2.0, 3.0]))


def distributed(checkpoint: Callable[..., Any]) -> Any:
    """Under a distribution strategy variables train."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        v = tf.Variable(3.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: x * v * v)(x)
        return tape.gradient(y, v)

    return strategy.run(step, [tf.constant(2.0)])


def custom_gradient(checkpoint: Callable[..., Any]) -> Any:
    """A tf.custom_gradient within a function counts."""

    @tf.custom_gradient
    def tenfold(x):
        return x * x, lambda g: g * 10

    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: tenfold(x * x))(x)
    return tape.gradient(y, x)


def numpy_argument(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be an array of NumPy."""
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = checkpoint(lambda x: x * v * v)(np.float32(2.0))
    return tape.gradient(y, v)


def ragged_argument(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be a ragged tensor."""
    x = tf.ragged.constant([[1.0], [2.0, 3.0]])
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(checkpoint(lambda x: x * v * v)(x).flat_values)
    return tape.gradient(y, v)


def runs_twice(checkpoint: Callable[..., Any]) -> Any:
    """A function runs once in the forward, and once more in the backward."""
    x, runs = tf.constant(2.0), []
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: runs.append(1) or x * x)(x)
    forward = len(runs)
    tape.gradient(y, x)
    return ([1, 2], [forward, len(runs)])


PROMISES = (
    keyword_tensor,
    keyword_option,
    keyword_option_in_function,
    closed_over_tensor,
    closed_over_variable,
    variables_alone,
    untrainable_variable,
    variable_argument,
    variable_argument_stays_one,
    number_argument,
    number_that_counts,
    number_that_counts_in_function,
    flag_argument,
    flag_argument_in_function,
    mask_argument_in_function,
    none_argument,
    integer_argument,
    integer_argument_in_function,
    sparse_gradient,
    tuple_argument,
    dictionary_argument,
    dictionary_returned,
    none_returned,
    integer_returned,
    same_argument_twice,
    returns_same_twice,
    unused_argument,
    unused_output,
    second_derivative,
    second_derivative_by_variable,
    gradient_penalty,
    forward_derivative,
    persistent_tape,
    jacobian,
    stop_recording,
    stopped_inside,
    drawn_with_seed,
    drawn_in_function,
    counted,
    assigned_before_the_backward,
    variables_made_inside,
    variables_made_in_function,
    model,
    dense_in_half,
    nested,
    function_inside,
    function_itself,
    around_of_functions,
    traced_once,
    compiled,
    mapped,
    vectorized,
    in_loop,
    loop_over_tensors,
    mapped_in_function,
    loop_inside,
    in_condition,
    error_passes,
    not_a_number,
    infinite,
    distributed,
    custom_gradient,
    numpy_argument,
    ragged_argument,
    runs_twice,
)

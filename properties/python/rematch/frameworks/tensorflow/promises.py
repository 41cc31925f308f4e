"""Promises that users of `tf.recompute_grad()` rely on beside equal gradients of float tensors."""

import weakref

import numpy as np
import tensorflow as tf

from rematch.frameworks.tensorflow import promises_arguments, promises_traced
from rematch.frameworks.tensorflow.promises_arguments import gradient
from rematch.subjects.promises import promises_in


def variable_given_and_closed_over(checkpoint):
    """A variable that is an argument, and closed over as well, gets both gradients."""
    return gradient(lambda v: checkpoint(lambda w: w * v)(v), tf.Variable([2.0, 3.0]))


def unused_argument(checkpoint):
    """An argument that nothing uses has no gradient."""
    square = checkpoint(lambda x, w: x * x)
    return [gradient(square, tf.constant(2.0), tf.constant(3.0))[1] is None]


def unused_output(checkpoint):
    """An output that nothing uses adds nothing to gradients, even where its derivative is infinite."""
    return gradient(lambda x: checkpoint(lambda x: (x * 2, tf.sqrt(x)))(x)[0], tf.constant(0.0))


def second_derivative(checkpoint):
    """The gradient of a gradient is right."""
    cube = checkpoint(lambda x: x * x * x)
    return gradient(lambda x: gradient(cube, x), tf.constant(2.0))


def second_derivative_by_variable(checkpoint):
    """The gradient of a gradient by a variable is right."""
    v = tf.Variable(2.0)
    cube = checkpoint(lambda x: x * v * v * v)
    return gradient(lambda v: gradient(lambda v: cube(tf.constant(1.0)), v), v)


def gradient_penalty(checkpoint):
    """A gradient with respect to the input can be differentiated with respect to a variable."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    return gradient(lambda v: gradient(checkpoint(lambda x: x * x * v * v), x), v)


def forward_derivative(checkpoint):
    """A tf.autodiff.ForwardAccumulator goes through a function."""
    x = tf.constant(2.0)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)) as accumulator:
        y = checkpoint(lambda x: x * x * x)(x)
    return accumulator.jvp(y)


def persistent_tape(checkpoint):
    """A persistent tape differentiates a function twice."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * x * v)(x)
    return [float(tape.gradient(y, x)), float(tape.gradient(y, v)), float(tape.gradient(y, x))]


def jacobian(checkpoint):
    """tape.jacobian() goes through a function."""
    x = tf.constant([2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * tf.reduce_sum(x))(x)
    return tape.jacobian(y, x)


def stop_recording(checkpoint):
    """What a function computes while its tape is stopped is constant."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tape.stop_recording():
            y = checkpoint(lambda x: x * x)(x)
        z = x * y
    return tape.gradient(z, x)


def stopped_inside(checkpoint):
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


def drawn_with_seed(checkpoint):
    """An op with a seed draws the same in the recomputation."""
    tf.random.set_seed(3)
    x, seen = tf.constant(2.0), []

    def noisy(x):
        seen.append(float(tf.random.uniform([], seed=5)))
        return x * x * seen[-1]

    gradient(checkpoint(noisy), x)
    return [seen[0] == seen[-1]]


def counted(checkpoint):
    """What a function assigns to a variable is assigned once."""
    x, v = tf.constant(2.0), tf.Variable(0.0, trainable=False)

    def count(x):
        v.assign_add(1.0)
        return x * x

    gradient(checkpoint(count), x)
    return v.numpy()


def assigned_before_the_backward(checkpoint):
    """A variable that is assigned to before the backward has the gradient of the forward."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: x * v)(x)
    v.assign(30.0)
    return tape.gradient(y, x)


def variables_made_inside(checkpoint):
    """A layer may make its variables in the first call, and they train."""
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
    x = tf.ones([1, 2])
    with tf.GradientTape() as tape:
        y = checkpoint(lambda x: layer(x) ** 2)(x)
    return tape.gradient(y, layer.kernel.value)


def model(checkpoint):
    """A model of Keras may be checkpointed as it is, and trains."""
    made = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
    made.build([1, 2])
    return gradient(lambda kernel: checkpoint(made)(tf.ones([1, 2])) ** 2, made.trainable_variables[0].value)


def dense_in_half(checkpoint):
    """A layer of mixed precision has gradients of float32."""
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones", dtype="mixed_bfloat16")
    layer.build([1, 2])
    square = checkpoint(lambda x: layer(x) ** 2)
    found = gradient(lambda kernel: square(tf.ones([1, 2])), layer.kernel.value)
    return [found.dtype == tf.float32, *found.numpy().ravel().tolist()]


def nested(checkpoint):
    """A checkpointed function may call another, and all variables train."""
    v, w = tf.Variable(2.0), tf.Variable(3.0)
    inner = checkpoint(lambda x: x * x * v)
    return gradient(lambda v, w: checkpoint(lambda x: inner(x) * w)(tf.constant(2.0)), v, w)


def mapped(checkpoint):
    """A function may be mapped over rows."""
    x, v = tf.constant([[1.0], [2.0]]), tf.Variable(3.0)
    return gradient(lambda v: tf.map_fn(checkpoint(lambda row: row * row * v), x), v)


def vectorized(checkpoint):
    """A function may be vectorized."""
    x, v = tf.constant([[1.0], [2.0]]), tf.Variable(3.0)
    return gradient(lambda v: tf.vectorized_map(checkpoint(lambda row: row * row * v), x), v)


def error_passes(checkpoint):
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


def custom_gradient(checkpoint):
    """A tf.custom_gradient within a function counts."""

    @tf.custom_gradient
    def tenfold(x):
        return x * x, lambda g: g * 10

    return gradient(lambda x: checkpoint(lambda x: tenfold(x * x))(x), tf.constant(2.0))


def numpy_argument(checkpoint):
    """An argument may be an array of NumPy."""
    return gradient(lambda v: checkpoint(lambda x: x * v * v)(np.float32(2.0)), tf.Variable(3.0))


def ragged_argument(checkpoint):
    """An argument may be a ragged tensor."""
    x = tf.ragged.constant([[1.0], [2.0, 3.0]])
    return gradient(lambda v: tf.reduce_sum(checkpoint(lambda x: x * v * v)(x).flat_values), tf.Variable(3.0))


def runs_twice(checkpoint):
    """A function runs once in the forward, and once more in the backward."""
    x, runs = tf.constant(2.0), []
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(lambda x: runs.append(1) or x * x)(x)
    forward = len(runs)
    tape.gradient(y, x)
    return ([1, 2], [forward, len(runs)])


def only_inputs_kept(checkpoint):
    """A tape keeps no output of a function that nothing needs."""
    x, made = tf.constant([2.0, 3.0]), []

    def doubled(x):
        y = x + x
        made.append(weakref.ref(y))
        return y

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.relu(checkpoint(doubled)(x))
    kept = made[0]() is not None
    tape.gradient(y, x)
    return [kept]


first, *rest = promises_in(globals())
PROMISES = (first, *promises_arguments.PROMISES, *promises_traced.PROMISES, *rest)

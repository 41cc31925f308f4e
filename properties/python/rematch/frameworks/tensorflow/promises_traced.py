"""Promises that users of `tf.recompute_grad()` rely on in `tf.function`."""

import tensorflow as tf

from rematch.frameworks.tensorflow.promises_arguments import gradient
from rematch.subjects.promises import promises_in


def in_function(objective, *by, **options):
    """The gradient of `objective(*by)`, in a tf.function of these options."""

    @tf.function(**options)
    def step(*by):
        return gradient(objective, *by)

    return step(*by)


def dropout_in_function(checkpoint):
    """The gradient of an unseeded dropout belongs to its own mask."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: tf.nn.dropout(x, 0.5))(x)
        return y - tape.gradient(y, x)

    tf.random.set_seed(0)
    return step(tf.ones([64]))


def keyword_option_in_function(checkpoint):
    """A keyword may be an option also in a tf.function."""
    block = checkpoint(lambda x, training: x * x if training else x)
    return in_function(lambda x: block(x, training=True), tf.constant(2.0))


def number_that_counts_in_function(checkpoint):
    """A number that is an argument may say how often a loop runs, also in a tf.function."""
    power = checkpoint(lambda x, n: x * sum(x for _ in range(n)))
    return in_function(lambda x: power(x, 3), tf.constant(2.0), autograph=False)


def flag_argument_in_function(checkpoint):
    """An argument may be True or False, also in a tf.function."""
    block = checkpoint(lambda x, training: x * x if training else x)
    return in_function(lambda x: block(x, True), tf.constant(2.0), autograph=False)


def mask_argument_in_function(checkpoint):
    """An argument may be a mask of booleans, also in a tf.function."""

    @tf.function(autograph=False)
    def step(x, mask):
        return gradient(lambda x: checkpoint(lambda x, mask: tf.where(mask, x * x, x))(x, mask), x)

    return step(tf.constant([2.0, 3.0]), tf.constant([True, False]))


def integer_argument_in_function(checkpoint):
    """A function may take integers, also in a tf.function."""
    table = tf.Variable([[1.0], [2.0], [3.0]])

    @tf.function
    def step(tokens):
        look_up = checkpoint(lambda i: tf.gather(table, i) ** 2)
        return tf.convert_to_tensor(gradient(lambda table: look_up(tokens), table))

    return step(tf.constant([2, 0, 2]))


def drawn_in_function(checkpoint):
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


def variables_made_in_function(checkpoint):
    """A layer may make its variables in the first call, also in a tf.function."""
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: layer(x) ** 2)(x)
        return tape.gradient(y, layer.trainable_variables[0].value)

    return step(tf.ones([1, 2]))


def function_inside(checkpoint):
    """If a checkpointed function calls a tf.function, its variables train, in the second step, too."""
    v = tf.Variable(3.0)
    traced, gradients = tf.function(lambda x: x * v * v), []
    for _ in range(2):
        found = gradient(lambda v: checkpoint(lambda x: traced(x))(tf.constant(2.0)), v)
        gradients.append(None if found is None else float(found))
    return gradients


def function_itself(checkpoint):
    """A tf.function may be checkpointed as it is."""
    return gradient(lambda x: checkpoint(tf.function(lambda x: x * x * x))(x), tf.constant(2.0))


def around_of_functions(checkpoint):
    """A checkpointed function may be a tf.function."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    made = tf.function(checkpoint(lambda x: x * x * v))
    return gradient(lambda x, v: made(x), x, v)


def traced_once(checkpoint):
    """A tf.function is not traced again for each step."""
    traces, v = [], tf.Variable(3.0)

    @tf.function
    def step(x):
        traces.append(1)
        return gradient(lambda v: checkpoint(lambda x: x * v * v)(x), v)

    return [*[float(step(tf.constant(float(i)))) for i in range(3)], len(traces)]


def compiled(checkpoint):
    """A step may be compiled by XLA."""
    v = tf.Variable(3.0)
    square = checkpoint(lambda x: x * x * v)
    return [float(g) for g in in_function(lambda x, v: square(x), tf.constant(2.0), v, jit_compile=True)]


def in_loop(checkpoint):
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


def loop_over_tensors(checkpoint):
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


def mapped_in_function(checkpoint):
    """A function may be mapped over rows in a tf.function."""
    x = tf.constant([[1.0], [2.0]])
    return in_function(lambda v: tf.map_fn(checkpoint(lambda row: row * row * v), x), tf.Variable(3.0))


def loop_inside(checkpoint):
    """A loop may run within a function, also in a tf.function."""
    v = tf.Variable(3.0)

    def power(x):
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * v), [0, x])[1]

    return in_function(lambda v: checkpoint(power)(tf.constant(1.0)), v)


def in_condition(checkpoint):
    """A function may run in a branch of a tf.function."""
    x, v = tf.constant(1.0), tf.Variable(3.0)
    block = checkpoint(lambda x: x * v * v)
    return in_function(lambda v: tf.cond(x > 0, lambda: block(x), lambda: x), v)


def not_a_number(checkpoint):
    """A gradient that is no number for one element leaves the others as they are."""
    square = checkpoint(lambda x: x * x)
    found = in_function(lambda x: square(x) * tf.constant([float("nan"), 1.0]), tf.constant([2.0, 3.0]))
    return tf.math.is_nan(found)


def infinite(checkpoint):
    """A gradient that overflows is infinite, as a loss scale relies on."""
    square = checkpoint(lambda x: x * x)
    return in_function(lambda x: square(x) * tf.constant([float("inf"), 1.0]), tf.constant([2.0, 3.0]))


def distributed(checkpoint):
    """Under a distribution strategy variables train."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        v = tf.Variable(3.0)

    @tf.function
    def step(x):
        return gradient(lambda v: checkpoint(lambda x: x * v * v)(x), v)

    return strategy.run(step, [tf.constant(2.0)])


PROMISES = promises_in(globals())

"""Promises that users of `keras.remat()` and of `keras.RematScope` rely on, on each backend.

Layers are made in a scope, which changes nothing where `checkpoint` does not.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from rematch.subjects.promises import plain, promises_in
from rematch.subjects.promises_of_any import of_any


def gradients(objective: Any, *values: Any) -> Any:
    """Their numbers, one after another; None where there is none."""
    values = tuple(map(keras.ops.convert_to_tensor, values))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = objective(*values)
        found = tape.gradient(loss, values)
    elif keras.backend.backend() == "jax":
        import jax

        found = jax.grad(objective, tuple(range(len(values))))(*values)
    else:
        for value in values:
            value.requires_grad_(True)
            value.grad = None
        objective(*values).backward()
        found = [value.grad for value in values]
    flat = [[g] if g is None else keras.ops.convert_to_numpy(g).ravel().tolist() for g in found]
    return sum(flat, [])


def counted(runs: list[Any], x: Any, what: Any = 1) -> None:
    """Notes a run; JAX traces a function once, and runs what it found."""
    if keras.backend.backend() == "jax":
        import jax

        jax.debug.callback(lambda x: runs.append(what), x)
    else:
        runs.append(what)


def counting(runs: list[Any]) -> type[keras.layers.Layer]:
    """Makes a class of layers that square, and note their names when they run."""

    class Counted(keras.layers.Layer):
        def call(self, x):
            counted(runs, x, self.name)
            return x * x

        def compute_output_shape(self, shape):
            return shape

    return Counted


def scope(checkpoint: Callable[..., Any], mode: str = "full") -> Any:
    """Makes a scope of that mode, or one that changes nothing."""
    return keras.RematScope(mode=None if checkpoint is plain else mode)


def fitted(model: Any) -> Any:
    """Weights after an epoch of fit()."""
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
    return np.round(model.get_weights()[0], 5)


def mask_of_a_sequence(checkpoint):
    """A layer within a layer sees the mask of its input in the recomputation, too."""

    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.SimpleRNN(1, "tanh", True, "ones", "ones")

        def call(self, x):
            return self.inner(x)

    with scope(checkpoint):
        layer = Block()
    masking = keras.layers.Masking()
    x = keras.ops.convert_to_tensor(np.array([[[0.5], [0.25], [0.0]]], "float32"))
    return np.round(gradients(lambda x: keras.ops.sum(layer(masking(x))), x), 4)


def activations_of_lstm(checkpoint):
    """A scope of activations takes any layer that has one."""
    keras.utils.set_random_seed(0)
    with scope(checkpoint, "activations"):
        layer = keras.layers.LSTM(2)
    found = gradients(lambda x: keras.ops.sum(layer(x)), keras.ops.ones((1, 3, 2)))
    return np.round(found, 4)


def input_by_keyword(checkpoint):
    """A layer of a scope may get its input by keyword."""
    with scope(checkpoint):
        layer = keras.layers.Dense(1, kernel_initializer="ones")
    x = keras.ops.ones((1, 2))
    return gradients(lambda x: keras.ops.sum(layer(inputs=x)), x)


def attention_to_itself(checkpoint):
    """Keys and values of an attention in a scope, given by keyword, get their gradients."""
    keras.utils.set_random_seed(0)
    with scope(checkpoint):
        layer = keras.layers.MultiHeadAttention(1, 1, kernel_initializer="ones")
    x = keras.ops.convert_to_tensor(np.array([[[1.0], [2.0]]], "float32"))
    layer(x, value=x)
    return np.round(gradients(lambda x: keras.ops.sum(layer(x * 1, value=x * 1)), x), 3)


def masked(checkpoint):
    """The mask of a sequence reaches layers of a scope, and those behind them."""
    with scope(checkpoint):
        embedding = keras.layers.Embedding(3, 1, "ones", mask_zero=True)
        recurrent = keras.layers.SimpleRNN(1, None, True, "ones", "ones", "ones")
    tokens = keras.ops.convert_to_tensor(np.array([[1, 2, 0, 0]], "int32"))
    return keras.ops.convert_to_numpy(recurrent(embedding(tokens)))


def mixed_precision(checkpoint):
    """A layer of mixed precision has gradients of float32."""
    with scope(checkpoint):
        layer = keras.layers.Dense(1, kernel_initializer="ones", dtype="mixed_bfloat16")
    x = keras.ops.ones((1, 2))
    layer(x)
    return gradients(lambda x: keras.ops.sum(keras.ops.cast(layer(x), "float32")), x)


def training_of_the_call(checkpoint):
    """A layer inside a layer of a RematScope runs in the mode of the outer call, in the recomputation, too."""
    seen = []

    class Inner(keras.layers.Layer):
        def call(self, x, training=None):
            seen.append(bool(training))
            return x * x if training else x

    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def call(self, x):
            return self.inner(x)

    with scope(checkpoint):
        layer = Outer()
    found = gradients(lambda x: keras.ops.sum(layer(x, training=True)), keras.ops.ones((1, 1)))
    return [len(set(seen)), *found]


def trains_in_fit(checkpoint):
    """A model of a scope trains in fit()."""
    keras.utils.set_random_seed(0)
    with scope(checkpoint):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "tanh")])
    return fitted(model)


def dropout_in_fit(checkpoint):
    """A layer of a scope that has a mode trains in fit()."""
    keras.utils.set_random_seed(0)
    with scope(checkpoint):
        layer = keras.layers.Dropout(0.0)
    return fitted(keras.Sequential([keras.Input((2,)), layer, keras.layers.Dense(1)]))


def dense_in_fit(checkpoint):
    """A layer of a scope that has no mode trains in fit()."""
    keras.utils.set_random_seed(0)
    with scope(checkpoint):
        layer = keras.layers.Dense(1)
    return fitted(keras.Sequential([keras.Input((2,)), layer]))


def model_of_a_scope(checkpoint):
    """A functional model that is made of layers of a scope is the model of the same layers."""
    with scope(checkpoint):
        x = keras.Input((2,))
        y = keras.layers.Dense(2, "tanh", kernel_initializer="ones")(x)
        model = keras.Model(x, keras.layers.Add()([x, y]))
    return gradients(lambda x: keras.ops.sum(model(x)), keras.ops.zeros((1, 2)))


def made_from_its_configuration(checkpoint):
    """A layer that is cloned or loaded recomputes as the layer of the scope does."""
    runs = []
    with keras.RematScope(mode="full"):
        layer = counting(runs)()
    clone = type(layer).from_config(layer.get_config())
    if checkpoint is not plain:
        gradients(lambda x: keras.ops.sum(clone(x)), keras.ops.ones((1, 1)))
    return (2, len(runs))


def called_in_a_scope(checkpoint):
    """A layer that was made before the scope is recomputed when it is called in it."""
    runs = []

    def called(x):
        with keras.RematScope(mode="full"):
            return keras.ops.sum(layer(x))

    layer = counting(runs)()
    gradients(called, keras.ops.ones((1, 1)))
    return (2, len(runs))


def made_in_a_scope(checkpoint):
    """A layer that is made in a scope is recomputed."""
    runs = []
    with keras.RematScope(mode="full"):
        layer = counting(runs)()
    gradients(lambda x: keras.ops.sum(layer(x)), keras.ops.ones((1, 1)))
    return (2, len(runs))


def larger_than(checkpoint):
    """In a scope of outputs larger than a size, a layer of a larger output is recomputed."""
    runs = []
    with keras.RematScope(mode="larger_than", output_size_threshold=2):
        layer = counting(runs)()
    layer(keras.ops.ones((1, 4)))
    runs.clear()
    gradients(lambda x: keras.ops.sum(layer(x)), keras.ops.ones((1, 4)))
    return (2, len(runs))


def activations(checkpoint):
    """In a scope of activations, that of a layer is recomputed."""
    runs = []
    with keras.RematScope(mode="activations"):
        layer = keras.layers.Dense(1, lambda x: counted(runs, x) or x * x)
    layer(keras.ops.ones((1, 1)))
    runs.clear()
    gradients(lambda x: keras.ops.sum(layer(x)), keras.ops.ones((1, 1)))
    return (2, len(runs))


def named_layer(checkpoint):
    """In a scope of a list of layers, the one that is named is recomputed, and no other."""
    runs = []
    with keras.RematScope(mode="list_of_layers", layer_names=["a"]):
        a, b = (counting(runs)(name=name) for name in "ab")
    gradients(lambda x: keras.ops.sum(b(a(x))), keras.ops.ones((1, 1)))
    return ([2, 1], [runs.count("a"), runs.count("b")])


def frozen(checkpoint):
    """A frozen layer of a scope hands its gradient on, and does not train."""
    with scope(checkpoint):
        layer = keras.layers.Dense(1, kernel_initializer="ones")
    layer.trainable = False
    return gradients(lambda x: keras.ops.sum(layer(x)), keras.ops.ones((1, 2)))


def seed_moves_once(checkpoint):
    """A seed generator moves on once for each forward."""
    with scope(checkpoint):
        layer = keras.layers.Dropout(0.5, seed=1)
    gradients(lambda x: keras.ops.sum(layer(x, training=True)), keras.ops.ones((1, 2)))
    return keras.ops.convert_to_numpy(layer.seed_generator.state.value)


def built_in_first_call(checkpoint):
    """A layer may be built in the first call of a checkpointed function."""
    layer = keras.layers.Dense(1, kernel_initializer="ones")
    x = keras.ops.ones((1, 2))
    return gradients(lambda x: keras.ops.sum(checkpoint(lambda x: layer(x))(x)), x)


def regularized(checkpoint):
    """A loss that a layer of a scope adds is added once."""
    with scope(checkpoint):
        layer = keras.layers.ActivityRegularization(l2=1.0)
    gradients(lambda x: keras.ops.sum(layer(x)), keras.ops.ones((1, 2)))
    return [len(layer.losses)]


def loss_inside(checkpoint):
    """If a layer adds a loss in its call, the loss counts once, and has its gradient."""

    class Penalized(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.sum(x * x))
            return x * x * x

    with scope(checkpoint):
        layer = Penalized()
    found = gradients(lambda x: keras.ops.sum(layer(x)) + sum(layer.losses), keras.ops.ones((1, 1)))
    return [found[0], len(layer.losses)]


PROMISES = (*promises_in(globals()), *of_any("keyword_tensor closed_over none_argument number_argument"))

"""Promises that users of `mx.checkpoint()` rely on beside equal gradients of float arrays."""

import mlx.core as mx
import mlx.nn as nn

from rematch.subjects.promises import promises_in


def integer_argument(checkpoint):
    """A checkpointed function may take integers, the tokens of an embedding for example."""
    tokens = mx.array([2, 0, 2])
    look_up = checkpoint(lambda table, tokens: table[tokens])
    return mx.grad(lambda table: look_up(table, tokens).sum())(mx.ones((3, 2)))


def written_argument(checkpoint):
    """What a checkpointed function writes to its argument is written for the caller, too."""

    def halve_first(x):
        x[0] = x[0] / 2
        return mx.tanh(x)

    halve = checkpoint(halve_first)

    def loss(x):
        y = x * 1
        return halve(y).sum() + (y * y).sum()

    return mx.grad(loss)(mx.array([1.0, 2.0]))


def vectorized(checkpoint):
    """Gradients of checkpointed functions can be vectorized by mx.vmap()."""
    rows = mx.array([[1.0, 2.0], [3.0, 4.0]])
    return mx.vmap(mx.grad(checkpoint(lambda x: mx.tanh(x).sum())))(rows)


def keyword_argument(checkpoint):
    """An argument may be given by keyword, and gets its gradient."""
    scaled = checkpoint(lambda x, scale: mx.tanh(x * scale))
    return mx.grad(lambda scale: scaled(mx.ones(2), scale=scale).sum())(mx.array(0.5))


def closed_over(checkpoint):
    """What a checkpointed function closes over gets its gradient."""

    def loss(weight):
        return checkpoint(lambda x: mx.tanh(x * weight))(mx.ones(2)).sum()

    return mx.grad(loss)(mx.array(0.5))


def returns_same_twice(checkpoint):
    """A function may return one array twice; both gradients count."""

    def loss(x):
        a, b = checkpoint(lambda x: (x, x))(x)
        return (2 * a + 5 * b).sum()

    return mx.grad(loss)(mx.ones(2))


def second_derivative(checkpoint):
    """The gradient of a gradient is right."""
    inner = mx.grad(checkpoint(lambda x: (x * x * x).sum()))
    return mx.grad(lambda x: inner(x).sum())(mx.array([1.0, 2.0]))


def forward_derivative(checkpoint):
    """mx.jvp() goes through a checkpointed function."""
    x = mx.array([1.0, 2.0])
    return mx.jvp(checkpoint(mx.tanh), [x], [mx.ones_like(x)])[1][0]


def nested_arguments(checkpoint):
    """Arguments and results may be lists and dictionaries of arrays."""
    swap = checkpoint(lambda p: {"a": [p["b"][0] * 2], "b": mx.tanh(p["a"])})

    def loss(p):
        made = swap(p)
        return (made["a"][0] * made["b"]).sum()

    gradients = mx.grad(loss)({"a": mx.ones(2), "b": [mx.array([3.0, 4.0])]})
    return mx.concatenate([gradients["a"], gradients["b"][0]])


def no_array_argument(checkpoint):
    """Arguments may be numbers, strings and None."""
    power = checkpoint(lambda x, n, name, none: x**n if name == "power" and none is None else x)
    return mx.grad(lambda x: power(x, 3, "power", None).sum())(mx.array([1.0, 2.0]))


def module(checkpoint):
    """nn.utils.checkpoint() of a module trains its parameters."""
    mx.random.seed(3)
    layer = nn.Linear(2, 2)
    called = layer if checkpoint is not mx.checkpoint else nn.utils.checkpoint(layer)
    train = nn.value_and_grad(layer, lambda x: called(x).sum())
    return train(mx.ones((1, 2)))[1]["weight"]


def module_frozen(checkpoint):
    """nn.utils.checkpoint() of a module leaves frozen parameters as they are."""
    mx.random.seed(3)
    layer = nn.Linear(2, 2)
    layer.freeze(keys=["bias"])
    called = layer if checkpoint is not mx.checkpoint else nn.utils.checkpoint(layer)
    train = nn.value_and_grad(layer, lambda x: called(x).sum())
    return [sorted(train(mx.ones((1, 2)))[1]) == ["weight"]]


def compiled(checkpoint):
    """Under mx.compile() gradients are those without it."""
    block = checkpoint(lambda x: mx.tanh(x) * x)
    return mx.compile(mx.grad(lambda x: block(block(x)).sum()))(mx.array([1.0, 2.0]))


def error_passes(checkpoint):
    """An error in a checkpointed function comes through as it is, and leaves nothing behind."""

    def fails(x):
        raise KeyError("mine")

    try:
        mx.grad(lambda x: checkpoint(fails)(x).sum())(mx.ones(2))
    except KeyError as error:
        said = str(error) == "'mine'"
    return [said, mx.grad(lambda x: mx.tanh(x).sum())(mx.zeros(1)).item() == 1]


def half_precision(checkpoint):
    """An array of another type than float32, such as bfloat16, has a gradient of that type."""
    found = mx.grad(lambda x: checkpoint(mx.tanh)(x).sum())(mx.ones(2, mx.bfloat16))
    return [found.dtype == mx.bfloat16, float(found[0])]


PROMISES = promises_in(globals())

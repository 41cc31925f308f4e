"""Promises that users of `mx.checkpoint()` rely on beside equal gradients of float arrays."""

import mlx.core as mx
import mlx.nn as nn

from rematch.subjects.promises import promises_in
from rematch.subjects.promises_of_any import of_any


def gradients(objective, *numbers):
    found = mx.grad(objective, list(range(len(numbers))))(*map(mx.array, numbers))
    return [g.item() for g in (found if len(numbers) > 1 else [found])]


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


def half_precision(checkpoint):
    """An array of another type than float32, such as bfloat16, has a gradient of that type."""
    found = mx.grad(lambda x: checkpoint(mx.tanh)(x).sum())(mx.ones(2, mx.bfloat16))
    return [found.dtype == mx.bfloat16, float(found[0])]


SHARED = of_any("keyword_tensor closed_over returns_same_twice other_arguments error_passes")
PROMISES = (*promises_in(globals()), *SHARED)

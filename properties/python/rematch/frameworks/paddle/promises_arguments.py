"""Promises that users of Paddle's `recompute()` rely on: what it takes and returns."""

from collections.abc import Callable
from typing import Any

import paddle

from rematch.subjects.promises import promises_in


def gradient(objective: Callable[..., Any]) -> Any:
    """The gradient of `objective(x)` where x is 2."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    objective(x).backward()
    return x.grad


def keyword_only(checkpoint):
    """A parameter that takes keywords alone gets its gradient."""
    x, w = paddle.to_tensor([[2.0], [3.0]], stop_gradient=False)

    def scaled(x, *, w):
        return x * w * w

    return [g.item() for g in paddle.grad(checkpoint(scaled)(x, w=w), [x, w])]


def any_keyword(checkpoint):
    """A function may take any keywords, as **options."""
    function = checkpoint(lambda x, **options: x * options["w"])
    return gradient(lambda x: function(x, w=paddle.to_tensor([3.0])))


def any_arguments(checkpoint):
    """Keywords stay keywords where a function takes any arguments, as a wrapper does."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = checkpoint(lambda x, *more, **options: x * options.get("w", 1.0) + len(more))(x, w=3.0)
    y.backward()
    return [y.item(), x.grad.item()]


def defaults(checkpoint):
    """Keywords may come in any order, defaults may be left out."""
    function = checkpoint(lambda x, power=2, bias=1.0, scale=1.0: scale * x**power + bias)
    return gradient(lambda x: function(scale=3.0, x=x))


def list_of_tensors(checkpoint):
    """Tensors in a list get their gradients."""
    return gradient(lambda x: checkpoint(lambda pair: pair[0] * pair[1])([x * 1, x * x]))


def dictionary_of_tensors(checkpoint):
    """Tensors in a dictionary get their gradients."""
    return gradient(lambda x: checkpoint(lambda x, named: x * named["square"])(x, {"square": x * x}))


def mixed_tuple(checkpoint):
    """A tuple may have a tensor that trains and one, a mask for example, that does not."""
    return gradient(lambda x: checkpoint(lambda pair: pair[0] * pair[1])((x * x, paddle.ones([1]))))


def tuple_with_none(checkpoint):
    """A tuple may have a tensor and None, as the cache of an attention has."""
    return gradient(lambda x: checkpoint(lambda x, cache: x * cache[0])(x, (x * x, None)))


def empty_tuple(checkpoint):
    """A tuple may be empty."""
    return gradient(lambda x: checkpoint(lambda x, masks: x * x + len(masks))(x, ()))


def closed_over(checkpoint):
    """What a function closes over gets its gradient."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    square = x * x
    checkpoint(lambda x: x * square)(x).backward()
    return x.grad


def closed_over_alone(checkpoint):
    """A frozen input is no reason not to train what the function closes over."""
    return gradient(lambda w: checkpoint(lambda x: x * w * w)(paddle.ones([1])))


def same_argument_twice(checkpoint):
    """A tensor given twice gets the sum of both gradients."""
    return gradient(lambda x: checkpoint(lambda a, b: a * b * b)(x, x))


def returns_same_twice(checkpoint):
    """A function may return one tensor twice; both gradients count."""
    x = paddle.to_tensor([2.0], stop_gradient=False)

    def twice(x):
        y = x * x
        return y, y

    a, b = checkpoint(twice)(x)
    (2 * a + 5 * b).backward()
    return x.grad


def input_handed_on(checkpoint):
    """A function may return its input beside its result."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    a, b = checkpoint(lambda x: (x * x, x))(x * 1)
    (2 * a + 5 * b).backward()
    return x.grad


def none_returned(checkpoint):
    """A function may return None beside a tensor, as attention without weights does."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y, none = checkpoint(lambda x: (x * x, None))(x)
    y.backward()
    return [x.grad.item(), none is None]


def dictionary_returned(checkpoint):
    """A function may return a dictionary of tensors."""
    return gradient(lambda x: checkpoint(lambda x: {"y": x * x})(x)["y"])


def list_returned(checkpoint):
    """A list that a function returns is a list."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    made = checkpoint(lambda x: [x * x, x * 3])(x)
    (made[0] * made[1]).backward()
    return [x.grad.item(), isinstance(made, list)]


def integer_tensor(checkpoint):
    """A function may take integers, the tokens of an embedding for example."""
    table = paddle.to_tensor([[1.0], [2.0], [3.0]], stop_gradient=False)
    checkpoint(lambda table, tokens: table[tokens].sum())(table, paddle.to_tensor([2, 0, 2])).backward()
    return table.grad


def other_arguments(checkpoint):
    """Arguments may be numbers, strings and None."""
    power = checkpoint(lambda x, n, name, none: x**n if name == "power" and none is None else x)
    return gradient(lambda x: power(x, 3, "power", None))


PROMISES = promises_in(globals())

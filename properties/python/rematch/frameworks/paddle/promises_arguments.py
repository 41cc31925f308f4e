"""Promises that users of Paddle's `recompute()` rely on: what it takes and returns."""

from collections.abc import Callable
from typing import Any

import paddle

from rematch.subjects.promises import promises_in
from rematch.subjects.promises_of_any import of_any


def gradients(objective: Callable[..., Any], *numbers: Any) -> Any:
    """The gradients of the objective where its arguments are these numbers."""
    given = [paddle.to_tensor([number], stop_gradient=False) for number in numbers]
    objective(*given).backward()
    return [None if x.grad is None else x.grad.item() for x in given]


def keyword_only(checkpoint):
    """A parameter that takes keywords alone gets its gradient."""
    x, w = paddle.to_tensor([[2.0], [3.0]], stop_gradient=False)

    def scaled(x, *, w):
        return x * w * w

    return [g.item() for g in paddle.grad(checkpoint(scaled)(x, w=w), [x, w])]


def any_keyword(checkpoint):
    """A function may take any keywords, as **options."""
    function = checkpoint(lambda x, **options: x * options["w"])
    return gradients(lambda x: function(x, w=paddle.to_tensor([3.0])), 2.0)


def any_arguments(checkpoint):
    """Keywords stay keywords where a function takes any arguments, as a wrapper does."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = checkpoint(lambda x, *more, **options: x * options.get("w", 1.0) + len(more))(x, w=3.0)
    y.backward()
    return [y.item(), x.grad.item()]


def defaults(checkpoint):
    """Keywords may come in any order, defaults may be left out."""
    function = checkpoint(lambda x, power=2, bias=1.0, scale=1.0: scale * x**power + bias)
    return gradients(lambda x: function(scale=3.0, x=x), 2.0)


def list_of_tensors(checkpoint):
    """Tensors in a list get their gradients."""
    return gradients(lambda x: checkpoint(lambda pair: pair[0] * pair[1])([x * 1, x * x]), 2.0)


def dictionary_of_tensors(checkpoint):
    """Tensors in a dictionary get their gradients."""
    return gradients(lambda x: checkpoint(lambda x, named: x * named["square"])(x, {"square": x * x}), 2.0)


def mixed_tuple(checkpoint):
    """A tuple may have a tensor that trains and one, a mask for example, that does not."""
    return gradients(lambda x: checkpoint(lambda pair: pair[0] * pair[1])((x * x, paddle.ones([1]))), 2.0)


def tuple_with_none(checkpoint):
    """A tuple may have a tensor and None, as the cache of an attention has."""
    return gradients(lambda x: checkpoint(lambda x, cache: x * cache[0])(x, (x * x, None)), 2.0)


def empty_tuple(checkpoint):
    """A tuple may be empty."""
    return gradients(lambda x: checkpoint(lambda x, masks: x * x + len(masks))(x, ()), 2.0)


def closed_over_alone(checkpoint):
    """A frozen input is no reason not to train what the function closes over."""
    return gradients(lambda w: checkpoint(lambda x: x * w * w)(paddle.ones([1])), 2.0)


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


SHARED = "closed_over same_argument_twice returns_same_twice input_handed_on none_returned dictionary_returned "
SHARED += "other_arguments unused_output"
PROMISES = (*promises_in(globals()), *of_any(SHARED))

"""What users of `recompute()` rely on beside equal gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle


def keyword(checkpoint: Callable[..., Any]) -> Any:
    """A tensor may be given by keyword."""
    a, b = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))
    checkpoint(lambda a, b: a * b * b)(b=b, a=a).backward()
    return a.grad.item(), b.grad.item()


def keyword_only(checkpoint: Callable[..., Any]) -> Any:
    """A tensor may be given by a keyword that the function takes in no other way."""
    a, b = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))

    def product(a, *, b):
        return a * b * b

    checkpoint(product)(a, b=b).backward()
    return a.grad.item(), b.grad.item()


def any_keyword(checkpoint: Callable[..., Any]) -> Any:
    """A tensor may be given to a function that takes any keyword."""
    a, b = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))

    def product(a, **rest):
        return a * rest["b"] * rest["b"]

    checkpoint(product)(a, b=b).backward()
    return a.grad.item(), b.grad.item()


def list_of_tensors(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be a list of tensors that were computed."""
    a, c = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))
    checkpoint(lambda c, parts: c * parts[0] * parts[0])(c, [a * 1]).backward()
    return a.grad.item(), c.grad.item()


def dict_of_tensors(checkpoint: Callable[..., Any]) -> Any:
    """An argument may be a dict of tensors that were computed."""
    a, c = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))
    checkpoint(lambda c, parts: c * parts["a"] * parts["a"])(c, {"a": a * 1}).backward()
    return a.grad.item(), c.grad.item()


def tuple_with_constant(checkpoint: Callable[..., Any]) -> Any:
    """A tuple may have tensors that require a gradient and others."""
    a, b = paddle.to_tensor([2.0], stop_gradient=False), paddle.to_tensor([3.0])
    checkpoint(lambda pair: pair[0] * pair[1])((a * 1, b)).backward()
    return a.grad.item()


def closed_over(checkpoint: Callable[..., Any]) -> Any:
    """What a function closes over gets its gradient, computed or not."""
    a, c = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))
    between = a * a
    checkpoint(lambda c: c * between * a)(c).backward()
    return a.grad.item(), c.grad.item()


def other_output(checkpoint: Callable[..., Any]) -> Any:
    """A function may return something that is no tensor."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    y, number = checkpoint(lambda a: (a * a, 7))(a)
    y.backward()
    return a.grad.item(), number


def constant_output(checkpoint: Callable[..., Any]) -> Any:
    """What a function returns detached requires no gradient."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    return [y.stop_gradient for y in checkpoint(lambda a: (a * a, a.detach() * 3))(a)]


def integer_output(checkpoint: Callable[..., Any]) -> Any:
    """A tensor of integers that a function returns requires no gradient."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    return [y.stop_gradient for y in checkpoint(lambda a: (a * a, a.astype("int32")))(a)]


def gradient_of_weight(checkpoint: Callable[..., Any]) -> Any:
    """paddle.grad() finds the gradient of what a function closes over."""
    a, w = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))
    return paddle.grad(checkpoint(lambda a: a * w)(a), [w])[0].item()


def gradient_of_input_alone(checkpoint: Callable[..., Any]) -> Any:
    """paddle.grad() by the input accumulates nothing elsewhere."""
    a, w = (paddle.to_tensor([v], stop_gradient=False) for v in (2.0, 3.0))
    found = paddle.grad(checkpoint(lambda a: a * w)(a), [a])
    return found[0].item(), w.grad is None


def second_derivative(checkpoint: Callable[..., Any]) -> Any:
    """A gradient can be differentiated once more."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    paddle.grad(checkpoint(lambda a: a * a * a)(a), [a], create_graph=True)[0].backward()
    return a.grad.item()


def backward_for_each_output(checkpoint: Callable[..., Any]) -> Any:
    """Two outputs may have a backward each, the second behind a retained graph."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    y, z = checkpoint(lambda a: (a.exp(), a.tanh()))(a)
    y.backward(retain_graph=True)
    z.backward()
    return a.grad.item()


def unused_output_and_retained_graph(checkpoint: Callable[..., Any]) -> Any:
    """An output may be unused where a graph is retained."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    y, _ = checkpoint(lambda a: (a.exp(), a.tanh()))(a)
    y.backward(retain_graph=True)
    y.backward()
    return a.grad.item()


def statistics(checkpoint: Callable[..., Any]) -> Any:
    """A layer in evaluation mode changes no statistics."""
    norm = paddle.nn.BatchNorm1D(1)
    norm.eval()
    a = paddle.to_tensor([[1.0], [3.0]], stop_gradient=False)
    checkpoint(lambda a: norm(a))(a).sum().backward()
    return norm._mean.item(), norm._variance.item()


PROMISES = (
    keyword,
    keyword_only,
    any_keyword,
    list_of_tensors,
    dict_of_tensors,
    tuple_with_constant,
    closed_over,
    other_output,
    constant_output,
    integer_output,
    gradient_of_weight,
    gradient_of_input_alone,
    second_derivative,
    backward_for_each_output,
    unused_output_and_retained_graph,
    statistics,
)
"""A second backward through the reentrant variant would kill the process: see RETAINED."""

RETAINED = (second_derivative, backward_for_each_output, unused_output_and_retained_graph)
"""Those that run more than one backward."""

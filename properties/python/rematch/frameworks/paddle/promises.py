"""Promises that users of Paddle's `recompute()` rely on beside equal gradients of float tensors."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn as nn
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker
from paddle.distributed.fleet.utils import recompute
from paddle.incubate.distributed.fleet import recompute_sequential

from rematch.frameworks.paddle import promises_arguments
from rematch.frameworks.paddle.promises_arguments import gradients
from rematch.subjects.promises import plain, promises_in


def reentrant(function: Callable[..., Any]) -> Any:
    return lambda *given, **named: recompute(function, *given, use_reentrant=True, **named)


def non_reentrant(function: Callable[..., Any]) -> Any:
    return lambda *given, **named: recompute(function, *given, use_reentrant=False, **named)


def backward_for_each_output(checkpoint):
    """Two outputs may have a backward each, the second behind a retained graph."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    y, z = checkpoint(lambda a: (a.exp(), a.tanh()))(a)
    y.backward(retain_graph=True)
    z.backward()
    return a.grad.item()


def unused_output_and_retained_graph(checkpoint):
    """An output may be unused where a graph is retained."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    y, _ = checkpoint(lambda a: (a.exp(), a.tanh()))(a)
    y.backward(retain_graph=True)
    y.backward()
    return a.grad.item()


def statistics(checkpoint):
    """A layer in evaluation mode changes no statistics."""
    norm = nn.BatchNorm1D(1)
    norm.eval()
    a = paddle.to_tensor([[1.0], [3.0]], stop_gradient=False)
    checkpoint(lambda a: norm(a))(a).sum().backward()
    return [norm._mean.item(), norm._variance.item()]


def detached_stays_detached(checkpoint):
    """A result that needs no gradient, a mask or detached, needs none outside."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    square, detached, sign = checkpoint(lambda x: (x * x, x.detach() * 1, x > 0))(x)
    return [square.stop_gradient, detached.stop_gradient, sign.stop_gradient]


def frozen_needs_no_gradient(checkpoint):
    """Where nothing requires a gradient, the result does not."""
    return [checkpoint(lambda x: x * x)(paddle.ones([1])).stop_gradient]


def no_grad(checkpoint):
    """Under paddle.no_grad() nothing is differentiated, nor run twice."""
    x, runs = paddle.to_tensor([2.0], stop_gradient=False), []
    with paddle.no_grad():
        y = checkpoint(lambda x: runs.append(1) or x * x)(x)
    return [y.item(), y.stop_gradient, len(runs)]


def no_grad_inside(checkpoint):
    """A part of a function under paddle.no_grad() gets no gradient."""

    def half(x):
        with paddle.no_grad():
            constant = x * x
        return constant * x

    return gradients(checkpoint(half), 2.0)


def auto_cast(checkpoint):
    """The recomputation runs under the auto_cast of the forward."""
    x, seen = paddle.ones([2, 2]), []
    x.stop_gradient = False

    def product(x):
        y = paddle.matmul(x, x)
        seen.append(str(y.dtype))
        return y

    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        y = checkpoint(product)(x)
    y.sum().backward()
    return [str(y.dtype), seen[-1]]


def auto_cast_off(checkpoint):
    """An auto_cast that is in effect at the backward alone does not change the recomputation."""
    x = paddle.to_tensor([[1.0 + 2**-12]], stop_gradient=False)
    y = checkpoint(lambda x: paddle.matmul(x, x) * x)(x)
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        y.sum().backward()
    return x.grad


def written_argument(checkpoint):
    """What a function writes to its argument it does not write twice."""
    x = paddle.to_tensor([2.0], stop_gradient=False)

    def double(x):
        x.scale_(2.0)
        return x * x

    y = x * 1
    checkpoint(double)(y).backward()
    return [x.grad.item(), y.item()]


def changed_before_the_backward(checkpoint):
    """A tensor that is written to before the backward is refused."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = x * 1
    made = checkpoint(lambda y: y * y * y)(y)
    with paddle.no_grad():
        y.scale_(10.0)
    try:
        made.backward()
    except RuntimeError:
        return [True]
    return [False]


def hook_on_input(checkpoint):
    """A hook on what a function is given runs once, and its result counts."""
    x, runs = paddle.to_tensor([2.0], stop_gradient=False), []
    y = x * 1
    y.register_hook(lambda g: runs.append(g.item()) or g * 10)
    checkpoint(lambda y: y * y)(y).backward()
    return [x.grad.item(), *runs]


def hook_inside(checkpoint):
    """A hook on a tensor within a function runs once, and its result counts."""
    runs = []

    def hooked(x):
        y = x * x
        y.register_hook(lambda g: runs.append(g.item()) or g * 10)
        return y * 3

    return [*gradients(checkpoint(hooked), 2.0), *runs]


def hook_of_forward(checkpoint):
    """A forward hook of a layer may change its output."""
    layer = nn.Linear(1, 1, paddle.nn.initializer.Constant(3.0), False)
    layer.register_forward_post_hook(lambda layer, inputs, output: output * output)
    return [*gradients(checkpoint(layer), 2.0), layer.weight.grad.item()]


def second_derivative(checkpoint):
    """The gradient of a gradient is right."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = checkpoint(lambda x: x * x * x)(x)
    (first,) = paddle.grad(y, x, create_graph=True)
    first.backward()
    return [first.item(), x.grad.item()]


def gradient_by_input_alone(checkpoint):
    """paddle.grad() by an input does not add to the gradients of parameters."""
    x, w = paddle.to_tensor([[2.0], [3.0]], stop_gradient=False)
    layer = nn.Linear(1, 1, nn.initializer.Constant(3.0), False)
    (found,) = paddle.grad(checkpoint(layer)(x * w), x)
    return [found.item(), layer.weight.grad is None]


def gradient_by_parameter(checkpoint):
    """paddle.grad() by a parameter is its gradient."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    layer = nn.Linear(1, 1, nn.initializer.Constant(3.0), False)
    return paddle.grad(checkpoint(layer)(x), layer.weight)[0]


def custom_layer(checkpoint):
    """A PyLayer within a function is differentiated by its own backward."""

    class Tenfold(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 10 * ctx.saved_tensor()[0]

    return gradients(lambda x: checkpoint(lambda x: Tenfold.apply(x * x))(x), 2.0)


def error_in_forward(checkpoint):
    """An error comes through as it is, and leaves nothing behind."""
    x = paddle.to_tensor([2.0], stop_gradient=False)

    def fails(x):
        raise KeyError("mine")

    try:
        checkpoint(fails)(x)
    except KeyError as error:
        said = str(error) == "'mine'"
    return [said, paddle.is_grad_enabled(), (x * x).stop_gradient]


def error_in_recomputation(checkpoint):
    """An error in a recomputation leaves the grad mode and the random state as they were."""
    x, runs = paddle.to_tensor([2.0], stop_gradient=False), []

    def fails(x):
        runs.append(1)
        if len(runs) == 2:
            raise ValueError("no memory, say")
        return x * x * paddle.rand([1])

    paddle.seed(3)
    y = checkpoint(fails)(x)
    try:
        y.backward()
    except Exception:
        runs.append(1)
    enabled, drawn = paddle.is_grad_enabled(), paddle.rand([1]).item()
    paddle.set_grad_enabled(True)
    return [enabled, drawn]


def recomputation_of_drawn(checkpoint):
    """What NumPy, Python and Paddle draw in a recomputation is what they drew in the forward."""
    x, seen = paddle.to_tensor([2.0], stop_gradient=False), []

    def draw(x):
        drawn = [np.random.rand(), random.random(), paddle.rand([1]).item()]
        seen.append(drawn)
        return x * x * sum(drawn)

    paddle.seed(3), np.random.seed(3), random.seed(3)
    checkpoint(draw)(x).backward()
    after = [np.random.rand(), random.random(), paddle.rand([1]).item()]
    return [seen[0] == seen[-1], *after]


def tracked_stream(checkpoint):
    """Streams of the tracker, which parallel layers draw from, are restored."""
    x, seen = paddle.to_tensor([2.0], stop_gradient=False), []
    get_rng_state_tracker().reset()
    get_rng_state_tracker().add("local", 5)

    def draw(x):
        with get_rng_state_tracker().rng_state("local"):
            seen.append(paddle.rand([1]).item())
        return x * x * seen[-1]

    checkpoint(draw)(x).backward()
    with get_rng_state_tracker().rng_state("local"):
        after = paddle.rand([1]).item()
    get_rng_state_tracker().reset()
    return [seen[0] == seen[-1], after]


def random_state_not_preserved(checkpoint):
    """With preserve_rng_state=False a function that draws nothing is the same."""
    options = {} if checkpoint is plain else {"preserve_rng_state": False}
    return gradients(lambda x: checkpoint(lambda x: x * x)(x, **options), 2.0)


def nested(checkpoint):
    """A checkpointed function may call another."""
    inner = checkpoint(lambda x: x * x * x)
    return gradients(checkpoint(lambda x: inner(x) * x), 2.0)


def backward_inside(checkpoint):
    """A function may differentiate within itself, for a gradient penalty for example."""

    def slope(x):
        with paddle.enable_grad():
            y = x.detach()
            y.stop_gradient = False
            (g,) = paddle.grad(y * y, y)
        return g * x

    return gradients(checkpoint(slope), 2.0)


def bound_method(checkpoint):
    """A method of an object may be checkpointed."""
    layer = nn.Linear(1, 1, nn.initializer.Constant(3.0), False)
    return [*gradients(checkpoint(layer.forward), 2.0), layer.weight.grad.item()]


def accumulated(checkpoint):
    """Gradients of a parameter accumulate over backwards of two forwards."""
    layer = nn.Linear(1, 1, nn.initializer.Constant(3.0), False)
    x = paddle.to_tensor([2.0], stop_gradient=False)
    for scale in (1.0, 10.0):
        (checkpoint(lambda x: layer(layer(x)))(x) * scale).backward()
    return [x.grad.item(), layer.weight.grad.item()]


def given_a_parameter(checkpoint):
    """A function gets the parameters that it is given, and not copies of them."""
    weight, same = paddle.create_parameter([1], "float32"), []
    product = checkpoint(lambda x, w: same.append(w.data_ptr() == weight.data_ptr()) or x * w)
    gradients(lambda x: product(x, weight), 2.0)
    return [all(same), weight.grad.item()]


def sequential(checkpoint):
    """recompute_sequential() in two segments computes what the layers do."""
    x = paddle.to_tensor([[2.0], [3.0]], stop_gradient=False)
    layers = [lambda x: x * x, lambda x: x - x.mean(), lambda x: x * x, lambda x: x + 1]
    if checkpoint is plain:
        for layer in layers:
            x = layer(x)
        return x
    return recompute_sequential({"segments": 2}, layers, x)


def runs_twice(checkpoint):
    """A function runs once in the forward and once more in the backward, whatever it returns."""
    x, runs = paddle.to_tensor([2.0], stop_gradient=False), []
    a, b = checkpoint(lambda x: runs.append(1) or (x * x * x, (x * x).log()))(x)
    (a * b).backward()
    return (2, len(runs))


RETAINED = (backward_for_each_output, unused_output_and_retained_graph)
"""A second backward through the reentrant variant would kill the process."""
OWN = promises_in(globals())
PROMISES = (*OWN[:3], *promises_arguments.PROMISES, *OWN[3:])

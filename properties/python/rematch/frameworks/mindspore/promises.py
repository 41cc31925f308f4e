"""Promises of the documentation of `mindspore.recompute()`, and what follows from it."""

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops


def leaf(*values: Any) -> Any:
    return ms.Tensor(np.array(values or (0.3, -0.7, 1.1), np.float32))


def gradients(function: Any, *inputs: Any) -> Any:
    """Of a function that returns a number."""
    found = ms.grad(function, tuple(range(len(inputs))))(*inputs)
    return [g.asnumpy() for g in (found if isinstance(found, tuple) else (found,))]


def keyword_arguments(checkpoint):
    """Keyword arguments reach the block, numbers and tensors."""
    function = checkpoint(lambda x, scale, power: (ops.sin(x) * scale) ** power)
    return gradients(lambda x, y: function(x, scale=y, power=2).sum(), leaf(), leaf(1, 2, 3))


def other_arguments(checkpoint):
    """Numbers, flags, texts and None may stand among the inputs."""
    function = checkpoint(lambda x, n, flag, name, no: getattr(ops, name)(x) * n if flag else no)
    return gradients(lambda x: function(x, 3, True, "sin", None).sum(), leaf())


def tensors_in_structures(checkpoint):
    """With use_reentrant=False, tensors inside complex types are differentiated."""
    function = checkpoint(lambda t: t[0]["a"] * t[1][0], use_reentrant=False)
    return gradients(lambda x, y: function(({"a": x}, (y,))).sum(), leaf(), leaf(1, 2, 3))


def dictionary_argument(checkpoint):
    """Tensors in a dictionary are differentiated."""
    function = checkpoint(lambda t: t["a"] * t["b"])
    return gradients(lambda x, y: function({"a": x, "b": y}).sum(), leaf(), leaf(1, 2, 3))


def structures_returned(checkpoint):
    """A block may return None and dictionaries beside tensors."""
    function = checkpoint(lambda x: (ops.sin(x), None, {"a": ops.cos(x)}))
    return gradients(lambda x: (function(x)[0] * function(x)[2]["a"]).sum(), leaf())


def input_returned(checkpoint):
    """A block may return an input beside what it computes."""
    function = checkpoint(lambda x: (ops.sin(x), x))
    return gradients(lambda x: (function(x)[0] * function(x)[1]).sum(), leaf())


def returned_twice(checkpoint):
    """A block may return one tensor twice."""

    def twice(x):
        y = ops.sin(x)
        return y, y

    function = checkpoint(twice)
    return gradients(lambda x: (function(x)[0] + 2 * function(x)[1]).sum(), leaf())


def same_argument_twice(checkpoint):
    """One tensor may be two arguments."""
    function = checkpoint(lambda x, y: ops.sin(x) * y)
    return gradients(lambda x: function(x, x).sum(), leaf())


def closed_over_tensor(checkpoint):
    """What a block uses without being given it has its gradient."""

    def loss(x, w):
        return checkpoint(lambda x: ops.sin(x) * w)(x).sum()

    return gradients(loss, leaf(), leaf(1, 2, 3))


def closed_over_tensor_not_reentrant(checkpoint):
    """With use_reentrant=False, what a block uses without being given it has its gradient."""

    def loss(x, w):
        return checkpoint(lambda x: ops.sin(x) * w, use_reentrant=False)(x).sum()

    return gradients(loss, leaf(), leaf(1, 2, 3))


def detached_inside(checkpoint):
    """What is detached within a block stays so."""
    function = checkpoint(lambda x: ops.sin(x) * ops.stop_gradient(x))
    return gradients(lambda x: function(x).sum(), leaf())


def integer_argument(checkpoint):
    """Integer tensors may be among the inputs."""
    function = checkpoint(lambda x, i: ops.gather(ops.sin(x), i, 0))
    index = ms.Tensor(np.array([0, 2], np.int32))
    return gradients(lambda x: function(x, index).sum(), leaf())


def integer_argument_not_reentrant(checkpoint):
    """With use_reentrant=False, integer tensors may be among the inputs."""
    function = checkpoint(lambda x, i: ops.gather(ops.sin(x), i, 0), use_reentrant=False)
    index = ms.Tensor(np.array([0, 2], np.int32))
    return gradients(lambda x: function(x, index).sum(), leaf())


def second_derivative(checkpoint):
    """A derivative of a derivative is that of the plain run, or an error."""
    function = checkpoint(lambda x: ops.sin(x) * x)
    return gradients(lambda x: ms.grad(lambda x: function(x).sum())(x).sum(), leaf())


def second_derivative_not_reentrant(checkpoint):
    """Higher-order differentiation is supported with early_stop=False."""
    function = checkpoint(lambda x: ops.sin(x) * x, use_reentrant=False, early_stop=False)
    return gradients(lambda x: ms.grad(lambda x: function(x).sum())(x).sum(), leaf())


def gradient_inside(checkpoint):
    """A block may compute a gradient inside."""
    function = checkpoint(lambda x: ms.grad(lambda x: ops.sin(x).sum())(x))
    return gradients(lambda x: function(x).sum(), leaf())


def error_in_forward(checkpoint):
    """An error in a block comes through, and the next step is as any other."""

    def fails(x):
        raise ValueError("no")

    try:
        gradients(lambda x: checkpoint(fails)(x).sum(), leaf())
    except ValueError:
        return gradients(lambda x: checkpoint(ops.sin)(x).sum(), leaf())
    return [0]


def contexts(checkpoint):
    """context_fn gives a context for the forward and one for the recomputation."""
    seen = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, *_):
            seen.append("end")

    function = checkpoint(
        lambda x: ops.sin(ops.exp(x)),
        use_reentrant=False,
        early_stop=False,
        context_fn=lambda: (Noted("forward"), Noted("recomputation")),
    )
    gradients(lambda x: function(x).sum(), leaf())
    return np.array(["forward", "end", "recomputation", "end"]), np.array(seen)


PROMISES = (
    *(keyword_arguments, other_arguments, tensors_in_structures, dictionary_argument),
    *(structures_returned, input_returned, returned_twice, same_argument_twice),
    *(closed_over_tensor, closed_over_tensor_not_reentrant, detached_inside),
    *(integer_argument, integer_argument_not_reentrant, second_derivative),
    *(second_derivative_not_reentrant, gradient_inside, error_in_forward),
    contexts,
)
HELPERS = (leaf, gradients)

"""Promises of the documentation of `mindspore.recompute()`, and what follows from it."""

from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops

from rematch.subjects.promises import promises_in
from rematch.subjects.promises_of_any import of_any


def leaf(*values: Any) -> Any:
    return ms.Tensor(np.array(values or (0.3, -0.7, 1.1), np.float32))


def gradients(function: Any, *inputs: Any) -> Any:
    """Of a function of tensors or numbers, by each of them, one number after another."""
    given = [a if isinstance(a, ms.Tensor) else leaf(a) for a in inputs]
    found = ms.grad(lambda *given: function(*given).sum(), tuple(range(len(given))))(*given)
    return [x for g in (found if isinstance(found, tuple) else (found,)) for x in g.asnumpy().ravel().tolist()]


def keyword_arguments(checkpoint):
    """Keyword arguments reach the block, numbers and tensors."""
    function = checkpoint(lambda x, scale, power: (ops.sin(x) * scale) ** power)
    return gradients(lambda x, y: function(x, scale=y, power=2).sum(), leaf(), leaf(1, 2, 3))


def tensors_in_structures(checkpoint):
    """With use_reentrant=False, tensors inside complex types are differentiated."""
    function = checkpoint(lambda t: t[0]["a"] * t[1][0], use_reentrant=False)
    return gradients(lambda x, y: function(({"a": x}, (y,))).sum(), leaf(), leaf(1, 2, 3))


def closed_over_tensor(checkpoint):
    """What a block uses without being given it has its gradient."""

    def loss(x, w):
        return checkpoint(lambda x: ops.sin(x) * w)(x).sum()

    return gradients(loss, leaf(), leaf(1, 2, 3))


def closed_over_tensor_not_reentrant(checkpoint):
    """With use_reentrant=False, what a block uses without being given it has its gradient."""
    return closed_over_tensor(partial(checkpoint, use_reentrant=False))


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
    return integer_argument(partial(checkpoint, use_reentrant=False))


def second_derivative(checkpoint):
    """A derivative of a derivative is that of the plain run, or an error."""
    function = checkpoint(lambda x: ops.sin(x) * x)
    return gradients(lambda x: ms.grad(lambda x: function(x).sum())(x).sum(), leaf())


def second_derivative_not_reentrant(checkpoint):
    """Higher-order differentiation is supported with early_stop=False."""
    return second_derivative(partial(checkpoint, use_reentrant=False, early_stop=False))


def gradient_inside(checkpoint):
    """A block may compute a gradient inside."""
    function = checkpoint(lambda x: ms.grad(lambda x: ops.sin(x).sum())(x))
    return gradients(lambda x: function(x).sum(), leaf())


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


SHARED = "other_arguments dictionary_argument none_returned dictionary_returned input_handed_on returns_same_twice "
SHARED += "same_argument_twice error_passes"
PROMISES = (*promises_in(globals()), *of_any(SHARED))
HELPERS = (leaf, gradients)

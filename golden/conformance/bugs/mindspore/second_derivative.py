"""mindspore.recompute(): the derivative of a derivative is zero.

A gradient penalty through a recomputed block trains nothing. early_stop=False, with which the docstring says that derivatives of
higher order are supported, changes nothing of that without use_reentrant=False.

severity: silent, zeros for gradients
versions: mindspore
promise: "Note: Higher-order differentiation is only supported when ``early_stop=False``", "This argument is ignored if
    ``use_reentrant=True``" (docstring of recompute): no word that there are zeros, and no error
cause: mindspore/common/recompute.py:417, _RecomputeCell.bprop: takes the gradient within a bprop, of detached inputs, which
    nothing differentiates once more
"""

import sys

import mindspore as ms
from mindspore import nn

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")


class Cube(nn.Cell):
    def construct(self, x):
        return x * x * x


def is_wrong(name, around, **options):
    def slope(x):
        return ms.grad(lambda x: around(Cube(), x, **options).sum())(x).sum()

    x = ms.Tensor([2.0])
    got = (float(slope(x)), float(ms.grad(slope)(x)[0]))
    print(f"{name}: {'WRONG' if got != (12, 12) else 'right'}: derivatives {got}, expected (12.0, 12.0)")
    return got != (12, 12)


is_wrong("control: no recompute", lambda block, x: block(x))
is_wrong("control: use_reentrant=False", ms.recompute, use_reentrant=False, early_stop=False)
wrong = is_wrong("recompute", ms.recompute)
wrong |= is_wrong("early_stop=False", ms.recompute, early_stop=False)
sys.exit(wrong)

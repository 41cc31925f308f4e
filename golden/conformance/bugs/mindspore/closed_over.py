"""mindspore.recompute(): what a block uses without being given it has a gradient of zeros.

A tensor that the block keeps, or a Parameter that it does not own, one in a tuple say, is taken for a constant. Inputs, and
parameters that belong to the block, have their gradients, and so has all with use_reentrant=False.

severity: silent, zeros for gradients
versions: mindspore
promise: "rather than storing the intermediate activation computed in forward pass, we will recompute it in backward pass"
    (docstring of recompute), with no word on what a block closes over
cause: mindspore/common/recompute.py:417, _RecomputeCell.bprop: differentiates by the inputs and by the block's own
    trainable_params() (line 441) alone
"""

import sys

import mindspore as ms
from mindspore import nn

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
x, tied = ms.Tensor([2.0]), ms.Parameter(ms.Tensor([3.0]), name="tied")


class Scaled(nn.Cell):
    def __init__(self, weight):
        super().__init__()
        self.weights = (weight,)

    def construct(self, x, *given):
        return x * (given or self.weights)[0]


def is_wrong(name, around, given=False, **options):
    w = ms.Tensor([3.0])
    by_tensor = ms.grad(lambda w: around(Scaled(w), x, *(w,) * given, **options).sum())(w)
    by_tied = ms.grad(lambda x: around(Scaled(tied), x, *(tied,) * given, **options).sum(), None, (tied,))(x)[0]
    got = (float(by_tensor[0]), float(by_tied[0]))
    print(f"{name}: {'WRONG' if got != (2, 2) else 'right'}: gradients {got}, expected (2.0, 2.0)")
    return got != (2, 2)


is_wrong("control: no recompute", lambda block, *given: block(*given))
is_wrong("control: given as an argument", ms.recompute, given=True)
is_wrong("control: use_reentrant=False", ms.recompute, use_reentrant=False, early_stop=False)
sys.exit(is_wrong("recompute", ms.recompute))

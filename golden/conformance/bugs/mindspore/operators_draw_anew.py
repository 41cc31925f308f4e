"""mindspore.recompute() on the CPU: a dropout draws another mask in the backward.

The recomputation restores get_rng_state(). On the CPU, ops.dropout and its like keep a state of their own, which is no part of
that: the gradient belongs to another mask than the output, and later draws are others.

severity: silent, wrong gradients
versions: mindspore
promise: "rather than storing the intermediate activation computed in forward pass, we will recompute it in backward pass"
    (docstring of recompute)
cause: mindspore/common/recompute.py: set_rng_state() does not reach the states that CPU kernels draw from
"""

import sys

import mindspore as ms
from mindspore import nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
x = ops.ones(8)


class Dropout(nn.Cell):
    def construct(self, x):
        return ops.dropout(x, 0.5, True)


class Fixed(nn.Cell):
    def construct(self, x):
        return x * ms.Tensor([0.0, 2.0] * 4)


def is_wrong(name, call):
    ms.set_seed(0)
    ms.manual_seed(0)
    outputs = []

    def loss(x):
        y = call(x)
        outputs.append(y)
        return y.sum()

    got, expected = ms.grad(loss)(x).asnumpy().tolist(), outputs[0].asnumpy().tolist()
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


is_wrong("control: no recompute", Dropout())
is_wrong("control: a fixed mask", lambda x: ms.recompute(Fixed(), x, use_reentrant=True))
wrong = is_wrong("use_reentrant=True", lambda x: ms.recompute(Dropout(), x, use_reentrant=True))
wrong |= is_wrong("use_reentrant=False", lambda x: ms.recompute(Dropout(), x, use_reentrant=False, early_stop=False))
sys.exit(wrong)

"""recompute(): a tensor that is written to before the backward gives another gradient, and no error.

A plain run refuses such a backward. The recomputation, of either implementation, takes the new values: the gradient belongs to
another function than the output. An input that is updated in place, or a weight that is stepped before the backward, is enough.

severity: silent, wrong gradients
versions: paddlepaddle
promise: "Please fix your code to void calling an inplace operator after using the Tensor which will used in gradient
    computation" (RuntimeError of the plain run, from paddle/fluid/eager/tensor_wrapper.h)
cause: paddle/distributed/fleet/recompute/recompute.py:287 and :517: what save_for_backward() of a PyLayer kept, and what the
    function of use_reentrant=False is called with again, is not compared with the version that the forward had
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, around, factor=10.0, **options):
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = x * 1
    cube = around(lambda y: y * y * y, y, **options)
    with paddle.no_grad():
        y.scale_(factor)
    try:
        cube.backward()
        got = x.grad.item()
    except RuntimeError:
        got = "an error"
    wrong = got not in (12.0, "an error")
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got}, expected 12.0 or an error")
    return wrong


is_wrong("control: no recompute", lambda function, y: function(y))
is_wrong("control: written with what it was", recompute, factor=1.0)
wrong = is_wrong("use_reentrant=True", recompute, use_reentrant=True)
wrong |= is_wrong("use_reentrant=False", recompute, use_reentrant=False)
sys.exit(wrong)

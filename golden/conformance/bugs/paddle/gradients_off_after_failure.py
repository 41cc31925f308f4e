"""recompute(use_reentrant=False): when a recomputation raises, gradients stay switched off for the process.

A loop that catches the error, of memory say, and goes on with the next batch trains nothing any more: what it computes requires
no gradient, and its backward leaves gradients None. Any unpack hook of saved_tensors_hooks that raises does the same.

severity: silent, no gradient
versions: paddlepaddle
promise: none is needed; after an error in the plain run, or with use_reentrant=True, gradients are on
cause: paddle/fluid/pybind/eager_utils.cc, UnPackHook::operator(): SetHasGrad(false), and the error leaves before
    SetHasGrad(grad_tmp)
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, around, fails=True, **options):
    x, runs = paddle.to_tensor([2.0], stop_gradient=False), []

    def square(x):
        runs.append(1)
        if fails and len(runs) == 2:
            raise MemoryError
        return x * x

    try:
        around(square, x, **options).backward()
    except Exception as error:
        runs.append(error)
    x.clear_gradient()
    (x * x).backward()
    got = None if x.grad is None else x.grad.item()
    paddle.set_grad_enabled(True)
    print(f"{name}: {'WRONG' if got != 4 else 'right'}: gradient of the next batch {got}, expected 4.0")
    return got != 4


is_wrong("control: nothing raises", recompute, fails=False, use_reentrant=False)
is_wrong("control: use_reentrant=True", recompute, use_reentrant=True)
sys.exit(is_wrong("use_reentrant=False", recompute, use_reentrant=False))

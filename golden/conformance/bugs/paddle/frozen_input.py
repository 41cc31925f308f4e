"""recompute(): weights that a function closes over train only if an argument requires a gradient.

With data, or with what frozen layers made of it, the first segment gets no gradient at all: its weights stay as they are. The
warning says "there is NO need to recompute this block in backward !". With use_reentrant=False the gradient is there.

severity: no gradient, with a warning that says another thing
versions: paddlepaddle
promise: "whose intermediate activations will be released to save memory in forward stage and will be recomputed in backward
    stage for gradient calculation" (docstring of recompute), with no word on arguments that require no gradient
cause: paddle/distributed/fleet/recompute/recompute.py:237, RecomputeFunction.forward: runs the function under no_grad(), and
    a PyLayer has no gradient where no argument has one
"""

import sys

import paddle
from paddle.distributed.fleet.utils import recompute


def is_wrong(name, around, frozen=True, **options):
    layer = paddle.nn.Linear(1, 1, paddle.nn.initializer.Constant(3.0), False)
    x = paddle.to_tensor([2.0], stop_gradient=frozen)
    around(layer, x, **options).backward()
    got = None if layer.weight.grad is None else layer.weight.grad.item()
    print(f"{name}: {'WRONG' if got != 2 else 'right'}: gradient of the weight {got}, expected 2.0")
    return got != 2


is_wrong("control: no recompute", lambda layer, x: layer(x))
is_wrong("control: an input that requires a gradient", recompute, frozen=False)
is_wrong("control: use_reentrant=False", recompute, use_reentrant=False)
sys.exit(is_wrong("an input that requires none", recompute))

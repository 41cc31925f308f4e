"""torch.compile takes use_reentrant=True for False: a segment whose inputs need no gradient trains.

Eagerly, a reentrant checkpoint of inputs that need no gradient gives its parameters none. Compiled, they get one.

severity: silent, gradients where there are none
promise: "At least one input and output must have requires_grad=True for the reentrant variant. If this condition is unmet,
    the checkpointed part of the model will not have gradients" (docstring of checkpoint)
cause: torch/_higher_order_ops/wrap.py, tag_activation_checkpoint_impl: "use_reentrant is set to False because this op is
    going to be traced"
"""

import sys
import warnings

import torch
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")
x = torch.ones(2)


def gradient(is_compiled, is_reentrant):
    weight, head = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    def step(x):
        return (checkpoint(lambda x: x * weight, x, use_reentrant=is_reentrant) * head).sum()

    (torch.compile(step, backend="aot_eager") if is_compiled else step)(x).backward()
    return None if weight.grad is None else weight.grad.tolist()


for is_reentrant in (False, True):
    expected, got = gradient(False, is_reentrant), gradient(True, is_reentrant)
    name = "use_reentrant=True" if is_reentrant else "control: use_reentrant=False"
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, eager {expected}")
sys.exit(got != expected)

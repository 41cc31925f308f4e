"""PyTorch: under autocast in the backward, too, a recomputation finds the cast that a later one has made.

Two checkpointed products share a weight, and no result of theirs is kept by the policy, so that all of it is to be computed
again. Prints how often the weight is cast in the backward: once for two recomputations where it is shared, and twice
where it is not, which is the control. Exit status 1 if a cast is left out.
"""

import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


class Casts(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._to_copy.default and args[0].shape == (4, 4)
        return func(*args, **(kwargs or {}))


def contexts():
    return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.MUST_RECOMPUTE)


def casts_in_backward(first, second):
    x = torch.ones(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        h = checkpoint(torch.nn.functional.linear, x, first, use_reentrant=False, context_fn=contexts)
        y = checkpoint(torch.nn.functional.linear, h, second, use_reentrant=False, context_fn=contexts)
        with Casts() as casts:
            y.sum().backward()
    return casts.count


weight = torch.nn.Parameter(torch.ones(4, 4))
other = torch.nn.Parameter(torch.ones(4, 4))
shared, control = casts_in_backward(weight, weight), casts_in_backward(weight, other)
print(f"PyTorch {torch.__version__}: {shared} cast of a weight that two regions share, {control} casts of two weights")
sys.exit(shared < control)

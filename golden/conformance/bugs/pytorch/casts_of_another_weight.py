"""Under autocast in the backward, a recomputation takes casts that the policy kept for another weight.

The cache of casts is cold in the forward. If the backward runs under autocast, the recomputation of a later region fills it,
and the recomputation of an earlier one then leaves out a cast. What the policy saved of the casts is found again by its
number, so that each later cast is that of another weight. (PyTorch says that "Backward passes under autocast are not
recommended".)

severity: silent, wrong gradients
promise: "ops run in an op-specific dtype chosen by autocast to improve performance while maintaining accuracy" (docstring
    of torch.autocast); the gradient without a checkpoint
cause: torch/utils/checkpoint.py, _CachedTorchDispatchMode: func_counter counts calls, which the cache of casts changes
"""

import sys
from contextlib import nullcontext
from functools import partial

import torch
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.manual_seed(0)
x, shared, other = (torch.randn(2, 2, requires_grad=True) for _ in range(3))
keep = partial(create_selective_checkpoint_contexts, [torch.ops.aten._to_copy.default])


def cast(caches=True):
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=caches)


def gradient(run, caches, is_within):
    with cast(caches):
        y = run(lambda x: linear(linear(x, shared).sin(), other).sin(), x)
    with cast(caches):
        y = run(lambda x: linear(x, shared).sin(), y)
    with cast(caches) if is_within else nullcontext():
        return torch.autograd.grad(y.sum(), x)[0]


def checkpointed(block, x):
    return checkpoint(block, x, use_reentrant=False, context_fn=keep)


def is_wrong(name, caches=True, is_within=True):
    expected = gradient(lambda block, x: block(x), caches, is_within)
    got = gradient(checkpointed, caches, is_within)
    wrong = not torch.equal(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got[0].tolist()}, expected {expected[0].tolist()}")
    return wrong


is_wrong("control: cache_enabled=False", caches=False)
is_wrong("control: the backward outside of autocast", is_within=False)
sys.exit(is_wrong("two regions share a weight"))

"""Selective checkpoint + backward under autocast: a saved cast of the wrong weight is used.

Each forward has an autocast of its own, and so has the backward, where the recomputation of the second region fills the cache
of casts. Saved casts are looked up by call index: the cached cast of `shared` is skipped, so the cast of `other` takes index
0, which is `shared`'s. Silent if both have one shape and dtype; else a CheckpointError. One autocast around all is right. With
a policy on both regions, one around both forwards is a RuntimeError. (torch.autocast says that "Backward passes under
autocast are not recommended".) Shown on the CPU.

severity: silent, wrong gradients
promise: none; in the opposite mismatch, more casts in the recomputation, PyTorch raises RuntimeError: this one goes unnoticed
cause: torch/utils/checkpoint.py:1709-1710 (recomputation) and :1611-1612 (forward): func_counter counts calls by
    _sac_storage_key (:1568), the op alone
"""

import sys
from contextlib import nullcontext
from functools import partial

import torch
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.manual_seed(0)
x = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
shared, other, third = (torch.randn(2, 2, requires_grad=True) for _ in range(3))
keep = {"context_fn": partial(create_selective_checkpoint_contexts, [torch.ops.aten._to_copy.default])}
again = partial(checkpoint, use_reentrant=False)


def gradient(run, cast, is_within, second, **options):
    with cast():
        y = run(lambda x: linear(linear(x, shared), other), x, **options)
    with cast():
        y = run(lambda x: linear(x, second), y)
    with cast() if is_within else nullcontext():
        return torch.autograd.grad(y.sum(), x)[0].tolist()


def is_wrong(name, caches=True, is_within=True, second=shared, options=keep):
    cast = partial(torch.autocast, "cpu", torch.bfloat16, cache_enabled=caches)
    expected = gradient(lambda block, x: block(x), cast, is_within, second)
    got = gradient(again, cast, is_within, second, **options)
    print(f"{name}: {'WRONG' if got != expected else 'right'}: gradient {got}, expected {expected}")
    return got != expected


is_wrong("control: cache_enabled=False", caches=False)
is_wrong("control: the backward outside of autocast", is_within=False)
is_wrong("control: no context_fn", options={})
is_wrong("control: no shared weight", second=third)
sys.exit(is_wrong("two regions share a weight"))

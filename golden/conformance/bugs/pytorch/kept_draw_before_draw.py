"""Selective checkpointing: a saved random operator does not advance the generator in the recomputation.

The policy saves the first dropout. The recomputation starts from the random state of the forward, takes the saved mask
instead of drawing it, and the second operator then draws the numbers that were the first one's.

severity: silent, wrong gradients
promise: "checkpointed passes making use of RNG (through dropout for example) have deterministic output as compared to
    non-checkpointed passes" (note in the documentation of torch.utils.checkpoint)
cause: torch/utils/checkpoint.py, _CachedTorchDispatchMode.__torch_dispatch__: returns the saved result, draws nothing
"""

import sys
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
x = torch.ones(4, requires_grad=True)


def block(x):
    return (torch.native_dropout(x, 0.5, True)[0] + 1) * torch.rand_like(x)


def gradient(call):
    torch.manual_seed(0)
    return torch.autograd.grad(call(x).sum(), x)[0]


def is_wrong(name, kept):
    contexts = partial(create_selective_checkpoint_contexts, kept)
    expected = gradient(block)
    got = gradient(lambda x: checkpoint(block, x, use_reentrant=False, context_fn=contexts))
    wrong = not torch.allclose(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got.tolist()}, expected {expected.tolist()}")
    return wrong


is_wrong("control: nothing is saved", [])
is_wrong("control: both are saved", [aten.native_dropout.default, aten.rand_like.default])
sys.exit(is_wrong("dropout is saved, rand_like is not", [aten.native_dropout.default]))

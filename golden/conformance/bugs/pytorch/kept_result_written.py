"""Selective checkpointing misses an in-place write to a saved result if the write goes through a view.

nn.Linear on a batch of sequences saves aten.mm and returns a view of it (aten._unsafe_view), which has a version counter of
its own. The check of cached tensors compares the counter of the saved tensor, so it does not see what SiLU(inplace=True)
writes, and the recomputation takes the written values for the product.

severity: silent, wrong gradients
promise: "By default, an error is raised if any tensors cached by selective activation checkpoint are mutated" (docstring of
    create_selective_checkpoint_contexts)
cause: torch/utils/checkpoint.py, _VersionWrapper.get_val: compares _version of the saved tensor alone
"""

import sys
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


def is_wrong(name, block, x, kept="mm"):
    def gradient(call):
        return torch.autograd.grad(call(x.requires_grad_()).sum(), x)[0].flatten()[:2]

    keep = partial(create_selective_checkpoint_contexts, [getattr(torch.ops.aten, kept).default])
    expected = gradient(block)
    try:
        got = gradient(lambda x: checkpoint(block, x, use_reentrant=False, context_fn=keep))
    except RuntimeError as error:
        print(f"{name}: refused: {str(error).splitlines()[0]}")
        return False
    wrong = not torch.allclose(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got.tolist()}, expected {expected.tolist()}")
    return wrong


torch.manual_seed(0)
linear, gru = nn.Linear(4, 4, bias=False), nn.GRU(4, 4)
in_place = nn.Sequential(linear, nn.SiLU(inplace=True))
is_wrong("control: 2 dimensions, no view between", in_place, torch.randn(6, 4))
is_wrong("control: SiLU not in place", nn.Sequential(linear, nn.SiLU()), torch.randn(2, 3, 4))
wrong = is_wrong("aten.mm kept, SiLU in place, 3 dimensions", in_place, torch.randn(2, 3, 4))
wrong |= is_wrong("aten.addmm of a GRU kept", lambda x: gru(x)[0].square(), torch.randn(3, 2, 4), "addmm")
wrong |= is_wrong("aten.view kept", lambda x: (x * 2).view(-1).mul_(2).sin(), torch.randn(3), "view")
sys.exit(bool(wrong))

"""respect_saved_tensors_hooks=True with save_on_cpu() drops the in-place check of selective checkpointing.

What a hook packs is wrapped instead of the tensor. save_on_cpu() packs a tuple, which has no version, so that a saved product
that is written in place is taken for the product. Without the option the same code is refused. A hook
that copies, such as save_on_cpu() of a tensor on a GPU, keeps what was there.

severity: silent, wrong gradients
promise: "By default, an error is raised if any tensors cached by selective activation checkpoint are mutated" (docstring of
    create_selective_checkpoint_contexts)
cause: torch/utils/checkpoint.py, _VersionWrapper.__init__: version is None for what is no tensor
thread: near https://github.com/pytorch/pytorch/issues/191236
"""

import sys
from functools import partial

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(4, 4, bias=False), nn.SiLU(inplace=True))
x = torch.randn(6, 4, requires_grad=True)
keep = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
expected = torch.autograd.grad(block(x).sum(), x)[0].flatten()[:2]


def is_wrong(respects):
    with save_on_cpu():
        y = checkpoint(block, x, use_reentrant=False, context_fn=keep, respect_saved_tensors_hooks=respects)
    name = f"{'' if respects else 'control: '}respect_saved_tensors_hooks={respects}"
    try:
        got = torch.autograd.grad(y.sum(), x)[0].flatten()[:2]
    except RuntimeError as error:
        return print(f"{name}: refused: {str(error).splitlines()[0]}")
    wrong = not torch.allclose(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got.tolist()}, expected {expected.tolist()}")
    return wrong


is_wrong(False)
sys.exit(bool(is_wrong(True)))

"""Tensor parallel: a policy that keeps aten.embedding ends in an AssertionError if RowwiseParallel splits the embedding.

Each rank has some words, and DTensor keeps which of the tokens these are in a mask, from the operator until the sum over
ranks. The recomputation takes the kept result instead of running the operator, so that there is no mask, and the sum ends in
an AssertionError that says nothing. One of two ranks on the CPU, whose collectives do nothing.

severity: error
versions: torch 2.15.0
promise: none; a policy that keeps nothing trains
cause: torch/distributed/tensor/_ops/_mask_buffer.py: the mask is state between two operators
searched: 2026-11
"""

import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
mesh = init_device_mesh("cpu", (2,))


def trains(kept):
    torch.manual_seed(0)
    words = parallelize_module(nn.Embedding(6, 4), mesh, RowwiseParallel(input_layouts=Replicate()))
    policy = partial(create_selective_checkpoint_contexts, kept)
    tokens = torch.tensor([[0, 5], [2, 3]])
    try:
        checkpoint(lambda x: words(x).tanh(), tokens, use_reentrant=False, context_fn=policy).sum().backward()
    except AssertionError:
        return False
    return words.weight.grad is not None


for name, kept in (("nothing", []), ("aten.embedding", [torch.ops.aten.embedding.default])):
    wrong = not trains(kept)
    print(f"{'control: ' * (not kept)}a policy that keeps {name}: {'WRONG: AssertionError' if wrong else 'right'}")
sys.exit(wrong)

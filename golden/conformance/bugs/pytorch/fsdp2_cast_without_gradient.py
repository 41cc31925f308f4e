"""FSDP2 under autocast: a unit in a reentrant segment silently gets no gradient if the backward runs under autocast.

The forward of a reentrant segment runs without gradients, and autocast caches the cast of the weight that is made there. The
recomputation takes that cast, which has no graph. Without fully_shard() the weight is a leaf that the cache knows how to treat.

severity: silent, no gradient
versions: torch 2.15.0
promise: none for the reentrant variant under FSDP2; without fully_shard() the gradient is there
cause: aten/src/ATen/autocast_mode.cpp, cached_cast: keeps casts across changes of the grad mode
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))


def is_wrong(name, is_reentrant=True, is_sharded=True, caches=True):
    unit = nn.Linear(4, 4)
    model = nn.Sequential(nn.Tanh(), unit)
    if is_sharded:
        fully_shard(unit, mesh=mesh)
        fully_shard(model, mesh=mesh)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=caches):
        checkpoint(model, torch.ones(2, 4, requires_grad=True), use_reentrant=is_reentrant).float().sum().backward()
    wrong = unit.weight.grad is None
    print(f"{name}: {'WRONG: the weight has no gradient' if wrong else 'right: the weight has a gradient'}")
    return wrong


is_wrong("control: no fully_shard()", is_sharded=False)
is_wrong("control: cache_enabled=False", caches=False)
is_wrong("control: use_reentrant=False", is_reentrant=False)
wrong = is_wrong("fully_shard(), use_reentrant=True")
dist.destroy_process_group()
sys.exit(wrong)

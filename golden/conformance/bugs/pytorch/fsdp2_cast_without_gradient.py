"""FSDP2: a unit in a reentrant segment silently gets no gradient if the backward runs under autocast, too.

The recomputation finds the cast of the weight that the forward left in the cache. The node of that cast is older than the
hook that ends the unit's backward, and autograd runs newer nodes first: the unit is resharded before the weight's gradient
is there, which then stays with the unsharded weight. (PyTorch says that "Backward passes under autocast are not
recommended".)

severity: silent, no gradient
versions: torch 2.15.0
promise: none for the reentrant variant under FSDP2; without fully_shard() the gradient is there
cause: torch/distributed/fsdp/_fully_shard, RegisterPostBackwardFunction, with casts that are cached across a recomputation
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


def is_wrong(name, is_reentrant=True, is_sharded=True, caches=True, is_within=True):
    unit = nn.Linear(4, 4)
    model = nn.Sequential(nn.Tanh(), unit)
    for module in (unit, model) if is_sharded else ():
        fully_shard(module, mesh=mesh)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=caches):
        loss = checkpoint(model, torch.ones(2, 4, requires_grad=True), use_reentrant=is_reentrant).float().sum()
        if is_within:
            loss.backward()
    if not is_within:
        loss.backward()
    wrong = unit.weight.grad is None
    print(f"{name}: {'WRONG: the weight has no gradient' if wrong else 'right: the weight has a gradient'}")
    return wrong


is_wrong("control: no fully_shard()", is_sharded=False)
is_wrong("control: cache_enabled=False", caches=False)
is_wrong("control: use_reentrant=False", is_reentrant=False)
is_wrong("control: the backward outside of autocast", is_within=False)
wrong = is_wrong("fully_shard(), use_reentrant=True")
dist.destroy_process_group()
sys.exit(wrong)

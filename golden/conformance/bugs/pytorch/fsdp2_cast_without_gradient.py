"""FSDP2 + reentrant checkpoint + backward under autocast: gradients arrive one step late (None in step 1).

The forward (no_grad) caches the bfloat16 casts of weight and bias with a graph node, and the recomputation reuses them. These
nodes have lower sequence numbers than RegisterPostBackwardFunction's, so post_backward() runs first, reduces nothing and
reshards. The gradients then land in unsharded_param.grad, and the next step reduces them. Nested reentrant segments are right
if the backward runs outside of autocast. Shown on the CPU with gloo, world size 1.

severity: silent, wrong gradients
versions: torch 2.15.0
promise: none for this mode: torch.autocast says that "Backward passes under autocast are not recommended"
    (torch/amp/autocast_mode.py:65), checkpoint() recommends use_reentrant=False; without fully_shard() gradients are right
cause: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:1397 (`ctx.param_group.post_backward()`) and :722-727 (takes
    the gradients, then reshards), with casts that are cached across a recomputation
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))


def is_wrong(name, is_reentrant=True, is_sharded=True, caches=True, is_within=True):
    unit, got = torch.nn.Linear(4, 4), []
    if is_sharded:
        fully_shard(unit, mesh=mesh)
    for scale in (1, 10):
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=caches):
            y = checkpoint(unit, torch.ones(2, 4, requires_grad=True), use_reentrant=is_reentrant)
            if is_within:
                (y.float().sum() * scale).backward()
        if not is_within:
            (y.float().sum() * scale).backward()
        got.append(None if unit.weight.grad is None else unit.weight.grad[0, 0].item())
        unit.zero_grad()
    print(f"{name}: {'WRONG' if got != [2, 20] else 'right'}: gradients {got}, expected [2.0, 20.0]")
    return got != [2, 20]


is_wrong("control: no fully_shard()", is_sharded=False)
is_wrong("control: cache_enabled=False", caches=False)
is_wrong("control: use_reentrant=False", is_reentrant=False)
is_wrong("control: the backward outside of autocast", is_within=False)
wrong = is_wrong("fully_shard(), use_reentrant=True")
dist.destroy_process_group()
sys.exit(wrong)

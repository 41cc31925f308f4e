"""FSDP2: selective checkpointing of a segment with a unit in it ends in an error.

The recomputation reaches the unit before the unit's backward does. The hooks of the unit then call record_function() more often
than in the forward, and the contexts of a policy refuse operators that the forward did not call. One rank on the CPU.

severity: error
versions: torch 2.15.0
promise: none; without fully_shard() it trains
cause: torch/utils/checkpoint.py, _CachedTorchDispatchMode: counts profiler._record_function_enter_new of FSDP2's hooks, too
thread: known https://github.com/pytorch/pytorch/pull/185178
"""

import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
nothing_kept = partial(create_selective_checkpoint_contexts, [])


class Model(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False, context_fn=nothing_kept)


def is_wrong(name, is_sharded):
    model = Model(nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    for unit in (model[1], model) if is_sharded else ():
        fully_shard(unit, mesh=mesh)
    try:
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    except RuntimeError as error:
        print(f"{name}: WRONG: {str(error).splitlines()[0]}")
        return True
    print(f"{name}: right: it trains")


is_wrong("control: no fully_shard()", False)
wrong = is_wrong("fully_shard()", True)
dist.destroy_process_group()
sys.exit(bool(wrong))

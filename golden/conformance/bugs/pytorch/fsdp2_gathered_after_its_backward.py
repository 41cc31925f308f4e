"""FSDP2: a recomputation that comes after a unit's backward gathers the unit again, and nothing reshards it.

Two ways lead there. An inner segment that is given its input by keyword is not recomputed for it, and the segment around it, which
does not stop early, runs the unit later. And a second loss may reach the segment through a value that the unit carries on, when
the backward of its other output is over. One rank on the CPU.

severity: memory and communication
versions: torch 2.15.0
promise: none; without checkpoints the unit is sharded after each backward
cause: torch/distributed/fsdp/_fully_shard/_fsdp_state.py: the pre-forward hook gathers in a recomputation, too
thread: near https://github.com/NVIDIA/Megatron-LM/pull/6153
"""

import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
not_early = partial(checkpoint, use_reentrant=False, early_stop=False)


class Carries(nn.Linear):
    def forward(self, x, carried=None):
        return super().forward(x) if carried is None else (super().forward(x), carried)


def by_keyword(unit, run):
    x = torch.ones(2, 4, requires_grad=True)
    run(lambda x: run(lambda *, x: unit(x), x=x.tanh()), x).sum().backward()


def by_a_second_loss(unit, run):
    x = torch.ones(2, 4, requires_grad=True)
    for i, y in enumerate(run(lambda x, carried: unit(x.relu(), carried), x.tanh(), x.sin())):
        y.sum().backward(retain_graph=i == 0)


ran = []
for way in (by_keyword, by_a_second_loss):
    for name, run in (("control: plain", lambda f, *x, **named: f(*x, **named)), ("checkpointed", not_early)):
        fully_shard(unit := Carries(4, 4), mesh=mesh)
        way(unit, run)
        ran.append(not isinstance(unit.weight, DTensor))
        print(
            f"{name}, {way.__name__}: {'WRONG: the weight is whole' if ran[-1] else 'right: it is sharded'} in the end"
        )
dist.destroy_process_group()
sys.exit(any(ran))

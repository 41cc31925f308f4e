"""FSDP2: a unit that differentiates within its checkpointed forward is resharded although reshard_after_forward is False.

The backward within the forward recomputes the segment in its midst. The forward of the unit that this runs ends the state of
the one around it, which reshards, so that the backward gathers once more. One rank on the CPU.

severity: memory and communication
versions: torch 2.15.0
promise: "If False, then this keeps the unsharded parameters in memory after forward and avoids the all-gather in backward"
    (docstring of fully_shard)
cause: torch/distributed/fsdp/_fully_shard/_fsdp_state.py: the post-forward hook does not know a recomputation
searched: 2026-11
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))


class Slope(nn.Linear):
    def forward(self, x):
        given = x.detach().requires_grad_()
        return super().forward(x) + torch.autograd.grad(super().forward(given).tanh().sum(), given)[0]


def is_wrong(name, layer, is_checkpointed=True):
    unit = layer(4, 4)
    fully_shard(unit, mesh=mesh, reshard_after_forward=False)
    x = torch.ones(2, 4, requires_grad=True)
    y = checkpoint(unit, x, use_reentrant=False, early_stop=False) if is_checkpointed else unit(x)
    wrong = isinstance(unit.weight, DTensor)
    print(f"{name}: {'WRONG: the weight is sharded' if wrong else 'right: the weight is whole'} after the forward")
    y.sum().backward()
    return wrong


is_wrong("control: not checkpointed", Slope, is_checkpointed=False)
is_wrong("control: nn.Linear", nn.Linear)
wrong = is_wrong("a layer that differentiates", Slope)
dist.destroy_process_group()
sys.exit(wrong)

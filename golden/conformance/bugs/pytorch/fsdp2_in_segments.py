"""FSDP2 in checkpointed segments: an error with a policy, and units that are gathered after their backward.

With a policy, a recomputation that reaches a unit before its backward ends in an error. A unit that differentiates within its
forward, so that its segment is recomputed there, is resharded after it, although it shall not be, and gathered once more. A
recomputation that does not stop early may come after the backward of a unit, whose own segment was given it by keyword: it
gathers the unit, and nothing reshards that. So does one for a second loss, which reaches the segment through a value that the
unit carries on. One rank on the CPU.

severity: an error; memory and communication
versions: torch 2.15.0
promise: none; plain runs do neither
cause: torch/distributed/fsdp/_fully_shard/_fsdp_state.py: hooks do not know recomputations
thread: known https://github.com/pytorch/pytorch/pull/185178
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))


class Model(nn.Module):
    """One segment, in which layer 1 is a unit of a model that is one, too."""

    def __init__(self, shard, **options):
        super().__init__()
        self.layers, self.options = nn.Sequential(nn.Tanh(), nn.Linear(4, 4), nn.Tanh()), options
        for unit in (self.layers[1], self) if shard else ():
            fully_shard(unit, mesh=mesh)

    def forward(self, x):
        return checkpoint(self.layers, x, **self.options)

    def trains(self):
        try:
            self(torch.ones(2, 4, requires_grad=True)).float().sum().backward()
        except RuntimeError as error:
            print(f"  {str(error).splitlines()[0][:110]}")
            return False
        return self.layers[1].weight.grad is not None


def trains_under_a_policy(shard):
    def contexts():
        return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.PREFER_RECOMPUTE)

    return Model(shard, use_reentrant=False, context_fn=contexts).trains()


class Slope(nn.Linear):
    def forward(self, x):
        given = x.detach().requires_grad_()
        return super().forward(x) + torch.autograd.grad(super().forward(given).tanh().sum(), given)[0]


def stays_whole(checkpointed):
    unit = Slope(4, 4)
    fully_shard(unit, mesh=mesh, reshard_after_forward=False)
    x = torch.ones(2, 4, requires_grad=True)
    y = checkpoint(unit, x, use_reentrant=False, early_stop=False) if checkpointed else unit(x)
    whole = not isinstance(unit.weight, DTensor)
    y.sum().backward()
    return whole


def ends_sharded(checkpointed):
    unit = nn.Linear(4, 4)
    fully_shard(unit, mesh=mesh, reshard_after_forward=False)

    def inner(x):
        return checkpoint(lambda *, x: unit(x), x=x, use_reentrant=False)

    def outer(x):
        return inner(x.tanh()) if checkpointed else unit(x.tanh())

    x = torch.ones(2, 4, requires_grad=True)
    y = checkpoint(outer, x, use_reentrant=False, early_stop=False) if checkpointed else outer(x)
    y.sum().backward()
    return isinstance(unit.weight, DTensor)


class Carries(nn.Linear):
    def forward(self, x, carried):
        return super().forward(x), carried


def ends_sharded_after_two_losses(checkpointed):
    unit = Carries(4, 4)
    fully_shard(unit, mesh=mesh)

    def segment(x, carried):
        return unit(x.relu(), carried)

    x = torch.ones(2, 4, requires_grad=True)
    given = x.tanh(), x.sin()
    outputs = checkpoint(segment, *given, use_reentrant=False) if checkpointed else segment(*given)
    outputs[0].sum().backward(retain_graph=True)
    outputs[1].sum().backward()
    return isinstance(unit.weight, DTensor)


cases = [(trains_under_a_policy, "fully_shard()", "control: no fully_shard()")]
cases += [
    (holds, "checkpointed", "control: plain") for holds in (stays_whole, ends_sharded, ends_sharded_after_two_losses)
]
wrong = []
for holds, name, control in cases:
    for is_case in (False, True):
        is_right = holds(is_case)
        wrong += [holds] if is_case and not is_right else []
        print(f"{name if is_case else control}: {holds.__name__}: {'right' if is_right else 'WRONG'}")
dist.destroy_process_group()
sys.exit(bool(wrong))

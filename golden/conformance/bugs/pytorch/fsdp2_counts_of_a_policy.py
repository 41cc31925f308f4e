"""FSDP2 with an integer reshard_after_forward: selective checkpointing takes one kept clone for another.

A policy keeps results that are found again by the number of the call: "the second aten.clone". With reshard_after_forward=2
the unit calls aten.clone itself, behind its forward, and not in a recomputation. So the first clone of the recomputation,
that of x, takes the place of the unit's, and the second one finds what the first one made. Four ranks on the CPU.

severity: silent, wrong gradients
versions: torch 2.15.0
promise: none; without fully_shard() the gradient is right
cause: torch/utils/checkpoint.py: func_counter counts calls of operators that FSDP2 makes, too
"""

import sys
import tempfile
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

RANKS = 4


class Product(nn.Module):
    keeps = False

    def forward(self, x):
        Product.keeps = True
        y = x.clone() * (3 * x).clone()
        Product.keeps = False
        return y


def policy(context, op, *args, **kwargs):
    is_kept = Product.keeps and op == torch.ops.aten.clone.default
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def run(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    for is_sharded in (False, True):
        unit = nn.Linear(4, 4, bias=False)
        nn.init.eye_(unit.weight)
        segment = nn.Sequential(unit, Product(), nn.Tanh())
        if is_sharded:
            fully_shard(unit, mesh=mesh, reshard_after_forward=2)
        x = torch.full((1, 4), 0.25, requires_grad=True)
        contexts = partial(create_selective_checkpoint_contexts, policy)
        checkpoint(segment, x, use_reentrant=False, context_fn=contexts).sum().backward()
        results[rank, is_sharded] = x.grad[0, 0].item()
    dist.destroy_process_group()


if __name__ == "__main__":
    x = torch.tensor(0.25, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.tanh(3 * x * x), x)
    with tempfile.TemporaryDirectory() as folder, mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(run, (folder, results), nprocs=RANKS)
        for is_sharded in (False, True):
            got = results[0, is_sharded]
            wrong = abs(got - expected.item()) > 1e-5
            name = "fully_shard(unit, reshard_after_forward=2)" if is_sharded else "control: no fully_shard()"
            print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got:.4f}, expected {expected.item():.4f}")
    sys.exit(wrong)

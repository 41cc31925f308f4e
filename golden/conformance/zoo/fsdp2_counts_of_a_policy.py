"""PyTorch 2.15, four ranks on the CPU: selective checkpointing of a segment with a unit of fully_shard() within.

A policy keeps results that are found again by the number of the call: "the second aten.clone". With
reshard_after_forward=2 the unit calls aten.clone itself, behind its forward, and not in a recomputation. So the first clone
of the recomputation, that of x, takes the place of the unit's, the second one finds what the first one made, and the
gradient is wrong, silently.
Prints the gradient of the segment's input with and without fully_shard(), and "right" or "wrong".
"""

import os
import tempfile

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


def run(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are on this machine
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    for shards in (False, True):
        unit = nn.Linear(4, 4, bias=False)
        nn.init.eye_(unit.weight)
        segment = nn.Sequential(unit, Product(), nn.Tanh())
        if shards:
            fully_shard(unit, mesh=mesh, reshard_after_forward=2)
        x = torch.full((1, 4), 0.25, requires_grad=True)
        plain = torch.tanh(3 * x * x).sum()
        (expected,) = torch.autograd.grad(plain, x)
        contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
        checkpoint(segment, x, use_reentrant=False, context_fn=contexts).sum().backward()
        if rank == 0:
            how = "with fully_shard()" if shards else "without"
            verdict = "right" if torch.allclose(x.grad, expected) else "wrong"
            print(f"{how}: {x.grad[0, 0]:.4f} for {expected[0, 0]:.4f}, {verdict}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (folder,), nprocs=RANKS)

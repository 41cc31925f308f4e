"""FSDP2: set_modules_to_forward_prefetch() in checkpointed segments gathers units that nobody uses, and holds them.

A recomputation runs the forward of the unit once more, in the backward, and prefetches the unit of the next segment. The
backward of that one is over: what is gathered is held until the whole backward ends: all units but the last. Two ranks on the CPU.

severity: memory and communication
versions: torch 2.15.0
promise: none; a plain run gathers each unit once in the backward
cause: torch/distributed/fsdp/_fully_shard/_fsdp_state.py: the pre-forward hook prefetches in a recomputation, too
thread: near https://github.com/NVIDIA/Megatron-LM/pull/6153
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

RANKS, SEGMENTS = 2, 4


class Gathers(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.count += op.namespace == "c10d" and "allgather" in op._opname
        return op(*args, **(kwargs or {}))


def run(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are on this machine
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    for checkpointed in (False, True):
        units = [fully_shard(nn.Linear(8, 8), mesh=mesh) for _ in range(SEGMENTS)]
        for unit, following in zip(units, units[1:]):
            unit.set_modules_to_forward_prefetch([following])

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.segments = nn.ModuleList(nn.Sequential(unit, nn.Tanh()) for unit in units)

            def forward(self, x):
                for segment in self.segments:
                    x = checkpoint(segment, x, use_reentrant=False) if checkpointed else segment(x)
                return x

        held = []

        def look(_):
            groups = [unit._get_fsdp_state()._fsdp_param_group for unit in units]
            held.extend(g for g in groups if g._all_gather_result is not None)

        x = torch.ones(2, 8, requires_grad=True)
        x.register_hook(look)  # its gradient is the last of all
        loss = fully_shard(Model(), mesh=mesh)(x).sum()
        with Gathers() as gathers:
            loss.backward()
        if rank == 0:
            how = "checkpointed" if checkpointed else "control: plain"
            wrong = gathers.count != SEGMENTS or held
            verdict = f"{gathers.count} gathers of {SEGMENTS} units, {len(held)} held that nobody uses"
            print(f"{how}: {'WRONG' if wrong else 'right'}: {verdict}", flush=True)
    dist.destroy_process_group()
    if rank == 0:
        (Path(folder) / "verdict").write_text("WRONG" if wrong else "right")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (folder,), nprocs=RANKS)
        sys.exit((Path(folder) / "verdict").read_text() == "WRONG")

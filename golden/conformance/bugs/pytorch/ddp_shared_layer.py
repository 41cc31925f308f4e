"""DDP: a layer that is used within a reentrant segment and outside of it has another gradient on each rank.

The inner backward of the segment sees all parameters, so that DDP reduces. What the outer backward adds to the shared layer
later stays on its rank.

severity: silent, gradients differ among ranks
versions: torch 2.15.0
promise: "with use_reentrant=True (the default), DDP will work as expected when there are no unused parameters in the model
    and each layer is checkpointed at most once" (docstring of DistributedDataParallel): this one is checkpointed once
cause: torch/csrc/distributed/c10d/reducer.cpp: an inner backward ends the reduction
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self, is_reentrant):
        super().__init__()
        self.layer, self.is_reentrant = nn.Linear(1, 1, bias=False), is_reentrant
        nn.init.ones_(self.layer.weight)

    def forward(self, x):
        return checkpoint(self.layer, self.layer(x), use_reentrant=self.is_reentrant)


def run(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for is_reentrant in (False, True):
        model = DistributedDataParallel(Model(is_reentrant))
        model(torch.full((1, 1), 1.0 + rank)).sum().backward()
        results[rank, is_reentrant] = model.module.layer.weight.grad.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(run, (folder, results), nprocs=2)
        for is_reentrant in (False, True):
            got = [results[rank, is_reentrant] for rank in range(2)]
            wrong = got != [3.0, 3.0]  # 2 for rank 0 and 4 for rank 1, averaged
            name = "use_reentrant=True" if is_reentrant else "control: use_reentrant=False"
            print(f"{name}: {'WRONG' if wrong else 'right'}: gradients of the ranks {got}, expected [3.0, 3.0]")
    sys.exit(wrong)

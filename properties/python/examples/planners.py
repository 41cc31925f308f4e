"""Do PyTorch's own planners of recomputation keep the budget that they are given?

Its knapsack solvers beside the best of all choices; compiled models under a memory budget. Usage: planners.py [SEED]
"""

import random
import sys
import weakref
from functools import partial
from itertools import pairwise

import torch
import torch._functorch.config as functorch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._activation_checkpointing import knapsack
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SOLVERS = ("greedy_knapsack", "dp_knapsack", "dp_knapsack_sliding_hirschberg", "ilp_knapsack")
KNAPSACKS, ITEMS = 1000, 10
BUDGETS = tuple(i / 20 for i in range(20, -1, -1))


class Live(TorchDispatchMode):
    """Counts the bytes of the storages that operators make, while they live."""

    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self.known = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for t in tree_leaves(returned):
            if isinstance(t, torch.Tensor) and (key := t.untyped_storage()._cdata) not in self.known.keys() | given:
                freed = partial(self.free, key, t.untyped_storage().nbytes())
                self.known[key] = weakref.ref(t.untyped_storage(), freed)
                self.live += t.untyped_storage().nbytes()
        self.peak = max(self.peak, self.live)
        return returned

    def free(self, key, count, _):
        del self.known[key]
        self.live -= count


def knapsacks(draw, solvers=SOLVERS):
    """Prints how often each solver exceeds a budget, and how much of the best saving it reaches where it does not."""
    print(f"{KNAPSACKS} knapsacks of {ITEMS} tensors    exceeds    worst   of the best saving, at least")
    cases = []
    for _ in range(KNAPSACKS):
        memory = [10 ** draw.uniform(-6, 0) for _ in range(ITEMS)]
        memory = [m / sum(memory) for m in memory]
        seconds = [10 ** draw.uniform(-3, 0) for _ in range(ITEMS)]
        budget = 10 ** draw.uniform(-5, 0)
        best = 0.0
        for chosen in range(1 << ITEMS):
            kept = [i for i in range(ITEMS) if chosen >> i & 1]
            if sum(memory[i] for i in kept) <= budget:
                best = max(best, sum(seconds[i] for i in kept))
        cases.append((memory, seconds, budget, best))
    for name in solvers:
        solve = getattr(knapsack, name)
        ratios, reached = [], []
        for memory, seconds, budget, best in cases:
            try:
                kept = solve(memory, seconds, budget)[1]
            except RuntimeError as error:
                print(f"  {name:<32} {error}")
                break
            ratios.append(sum(memory[i] for i in kept) / budget)
            if ratios[-1] <= 1 + 1e-9 and best:
                reached.append(sum(seconds[i] for i in kept) / best)
        exceeded = sum(ratio > 1 + 1e-9 for ratio in ratios)
        if ratios and reached:
            print(f"  {name:<32} {exceeded:>8} {max(ratios):>7.2f}x   {min(reached):.0%}")


def models():
    encoder = [nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True) for _ in range(4)]
    yield "4 encoder layers", nn.Sequential(*encoder), torch.randn(4, 64, 64)
    convolutions = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU()) for _ in range(6)]
    yield "6 convolutions with norms", nn.Sequential(*convolutions), torch.randn(4, 8, 16, 16)


def measured(model, x, budget):
    """Returns the bytes that a compiled step saves for its backward, and those of its peak beside what was there."""
    meter, saved = Live(), []

    def compiler(graph, _):
        def run(*args):
            with meter:
                return graph(*args)

        return make_boxed_func(run)

    def backend(graph, inputs):
        with functorch.patch(activation_memory_budget=budget):
            return aot_autograd(
                fw_compiler=compiler,
                bw_compiler=compiler,
                partition_fn=min_cut_rematerialization_partition,
                keep_inference_input_mutations=True,
            )(graph, inputs)

    torch.compiler.reset()
    step = torch.compile(model, backend=backend)
    step(x).sum().backward()
    given = {t.untyped_storage()._cdata for t in (x, *model.parameters(), *model.buffers())}

    def pack(t):
        saved.append(t.untyped_storage())
        return t

    model.zero_grad()
    meter.peak = meter.live
    before = meter.live
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = step(x).sum()
    kept = {storage._cdata: storage.nbytes() for storage in saved if storage._cdata not in given}
    saved.clear()
    loss.backward()
    return sum(kept.values()), meter.peak - before


def budgets():
    """Prints for each model what steps save and their peaks, and where a smaller budget peaks higher than a larger."""
    print("activation_memory_budget     saved at 1.0, 0.5, 0.0           peak      higher peaks of smaller budgets")
    for name, model, x in models():
        of = {budget: measured(model, x, budget) for budget in BUDGETS}
        saved, peak = (" ".join(f"{of[b][i] / 1e6:5.2f}" for b in (1.0, 0.5, 0.0)) for i in (0, 1))
        higher = [f"{b}: {of[b][1] / of[a][1]:.2f}x of {a}" for a, b in pairwise(BUDGETS) if of[b][1] > of[a][1]]
        print(f"  {name:<26} {saved} MB   {peak} MB   {'; '.join(higher) or 'none'}")


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1 << 32)
    print(f"torch {torch.__version__}, seed {seed}")
    torch.manual_seed(seed)
    knapsacks(random.Random(seed))
    budgets()

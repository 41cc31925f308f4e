"""Do PyTorch's own planners of recomputation keep the budget that they are given?

Its knapsack solvers beside the best of all choices; compiled models under a memory budget; the integer program for
selective checkpointing; checkpoint_sequential and every n-th layer. Also the schedules of checkpoint_schedules. pulp,
pwlf and checkpoint_schedules are optional. Usage: planners.py [SEED [knapsacks|budgets|sac|usual|schedules ...]]
"""

import contextlib
import importlib.util
import logging
import math
import random
import sys
import warnings
import weakref
from functools import partial
from itertools import pairwise
from unittest import mock

import torch
import torch._functorch.config as functorch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._activation_checkpointing import knapsack
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

SOLVERS = ("greedy_knapsack", "dp_knapsack", "dp_knapsack_sliding_hirschberg", "ilp_knapsack")
KNAPSACKS, ITEMS = 1000, 10
SCHEDULES = 200
NEEDS = {"sac": ("pulp", "pwlf"), "schedules": ("checkpoint_schedules",)}
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


def budgets(_):
    """Prints for each model what steps save and their peaks, and where a smaller budget peaks higher than a larger."""
    print("activation_memory_budget     saved at 1.0, 0.5, 0.0           peak      higher peaks of smaller budgets")
    for name, model, x in models():
        of = {budget: measured(model, x, budget) for budget in BUDGETS}
        saved, peak = (" ".join(f"{of[b][i] / 1e6:5.2f}" for b in (1.0, 0.5, 0.0)) for i in (0, 1))
        higher = higher_peaks({budget: of[budget][1] for budget in BUDGETS})
        print(f"  {name:<26} {saved} MB   {peak} MB   {higher}")


def chains(draw, unit):
    """Yields chains of blocks of several sizes, each with a batch; widths are multiples of the unit."""
    for _ in range(2):
        count, width = draw.randint(3, 6), draw.randint(2, 4) * unit
        inner = [draw.randint(1, 4) * width for _ in range(count)]
        encoder = [nn.TransformerEncoderLayer(width, 4, n, dropout=0.0, batch_first=True) for n in inner]
        yield f"{count} encoder layers", nn.Sequential(*encoder), torch.randn(4, draw.randint(1, 4) * unit, width)
        mlps = [nn.Sequential(nn.Linear(width, n), nn.GELU(), nn.Linear(n, width)) for n in inner]
        yield f"{count} mlps", nn.Sequential(*mlps), torch.randn(draw.randint(4, 32) * unit, width)
        pairs = [(nn.Conv2d(width, n, 3, padding=1), nn.Conv2d(n, width, 1)) for n in inner]
        blocks = [nn.Sequential(a, nn.GroupNorm(4, a.out_channels), nn.SiLU(), b) for a, b in pairs]
        yield f"{count} convolutions with norms", nn.Sequential(*blocks), torch.randn(4, width, unit, unit)


def peak_of(model, x, run=None):
    """Returns the bytes of a step's peak with its parameters, without its batch."""
    model.zero_grad()
    with Live() as meter:
        (run or model)(x).sum().backward()
    return meter.peak + sum(p.untyped_storage().nbytes() for p in model.parameters())


def higher_peaks(of):
    """Returns where a smaller budget peaks higher than the next larger."""
    return "; ".join(f"{b}: {of[b] / of[a]:.2f}x of {a}" for a, b in pairwise(of) if of[b] > of[a]) or "none"


def selective(block, decisions, skipped):
    """Checkpoints a block; of its n-th operator the result is kept if the n-th decision says so."""

    def contexts():
        decided = {again: iter(decisions) for again in (False, True)}
        return create_selective_checkpoint_contexts(
            lambda context, operator, *_, **__: operator not in skipped and bool(next(decided[context.is_recompute]))
        )

    forward = type(block).forward.__get__(block)
    block.forward = partial(checkpoint, forward, use_reentrant=False, context_fn=contexts)


def sac(draw):
    """Prints whether plans of SAC's integer program keep their budgets, and what its estimates of time are worth.

    It is used as in PyTorch's test_sac_ilp.py, with fake tensors, but on the CPU and without an optimizer. Its promise
    is an upper bound of the peak. Times, those of the planned step too, are PyTorch's rooflines of a GPU that is named.
    """
    import numpy
    from torch.distributed._tools import ilp_utils, mem_tracker, runtime_estimator, sac_estimator, sac_ilp

    def time_of(model, x):
        model.zero_grad()
        times = runtime_estimator.RuntimeEstimator(gpu_type="NVIDIA H100")
        with contextlib.redirect_stdout(None), times("operator-level-cost-model"):
            model(x).sum().backward()
        return times

    numpy.random.seed(draw.getrandbits(32))  # for the fit of the curve of time over bytes
    sac_ilp.logger.setLevel(logging.CRITICAL)
    print("SAC's integer program        exceeds    peak, of the budget  time, of the promise  higher peaks of smaller")
    with FakeTensorMode(), mock.patch("torch.accelerator.is_available", return_value=True):
        for name, model, x in chains(draw, 256):
            tracker = mem_tracker.MemTracker()
            tracker.track_external(model, x)
            with tracker:
                model(x).sum().backward()
            plain = time_of(model, x)
            with sac_estimator.SACEstimator(gpu_type="NVIDIA H100")("operator-level-cost-model") as known:
                loss = model(x).sum()
            loss.backward()
            graph = ilp_utils.parse_module_info(ilp_utils.aggregate_stats(model, tracker, plain, known, x.device))
            whole, _ = ilp_utils.get_peak_memory_runtime_baseline(graph)
            of, times = {}, []
            for budget in BUDGETS[1:]:
                plan, promise, _ = sac_ilp.sac_milp(graph, budget * whole / 2**30)
                for path, ratio in plan.items():
                    kept = sac_ilp.get_optimal_checkpointing_policy_per_module(known.sac_mod_stats[path], 1 - ratio)
                    selective(model.get_submodule(path.partition(".")[2]), kept, sac_estimator.OPS_TO_ALWAYS_SKIP)
                if plan:
                    of[budget] = peak_of(model, x) / whole
                if promise > plain.total_runtime / 100:  # it is rounded
                    times.append((time_of(model, x).total_runtime - plain.total_runtime) / promise)
                for block in model.modules():
                    vars(block).pop("forward", None)
            ratios = [peak / budget for budget, peak in of.items()]
            exceeds = f"{sum(ratio > 1.001 for ratio in ratios)} of {len(of)}"
            span = f"{min(ratios):.3f} to {max(ratios):.3f}x     {min(times):.2f} to {max(times):.2f}x"
            print(f"  {name:<26} {exceeds:<10} {span:<40}  {higher_peaks(of)}")


def choices(count):
    """Returns all ways to checkpoint a chain, as lengths of segments; 0 is a block that is not checkpointed."""
    if not count:
        return [()]
    return [(length, *rest) for length in range(count + 1) for rest in choices(count - max(length, 1))]


def segments(model, lengths, x):
    """Runs a chain with such a choice."""
    for length in lengths:
        segment, model = model[: max(length, 1)], model[max(length, 1) :]
        x = checkpoint(segment, x, use_reentrant=False) if length else segment(x)
    return x


def usual(draw):
    """Prints peaks of what people do without a plan, beside the least of all choices of segments."""
    print("peak, % of the plain one    least  checkpoint_sequential(1), (2) ...  every 1st, 2nd ... layer")
    for name, model, x in chains(draw, 8):
        of = {lengths: peak_of(model, x, partial(segments, model, lengths)) for lengths in choices(len(model))}
        plain, counts = of[(0,) * len(model)], range(1, len(model) + 1)
        runs = [partial(checkpoint_sequential, model, n, use_reentrant=False) for n in counts]
        every = [of[tuple(int(i % n == 0) for i in range(len(model)))] for n in counts]
        rows = [[min(of.values())], [peak_of(model, x, run) for run in runs], every]
        least, sequential, nth = (" ".join(f"{100 * peak / plain:3.0f}" for peak in row) for row in rows)
        print(f"  {name:<26} {least}    {sequential:<33}  {nth}")


def simulated(schedule, count):
    """Runs a schedule's actions on a chain; returns its forward steps, and the most snapshots of each storage."""
    held, most = {"RAM": {}, "DISK": {}}, {"RAM": 0, "DISK": 0}
    state, ready, left, steps = 0, None, count, 0
    for action in schedule:
        match type(action).__name__, action.args:
            case "Forward", (first, end, restarts, backs, storage):
                assert state == first
                state, ready, steps = end, first if backs else None, steps + end - first
                if storage.name in held:
                    held[storage.name][first] = restarts
            case "Copy" | "Move" as verb, (first, source, _):
                # Mixed stores what a step's backward needs; the forward cannot go on from that.
                state, ready = (first, None) if held[source.name][first] else (None, first)
                if verb == "Move":
                    del held[source.name][first]
            case "Reverse", (end, first, _):
                assert (end, first) == (left, ready)
                left = first
            case "EndReverse", _:
                break
        most = {name: max(most[name], len(snapshots)) for name, snapshots in held.items()}
    assert not left
    return steps, most


def schedules(draw):
    """Prints whether checkpoint_schedules keep their snapshots, and their forward steps beside the binomial optimum.

    One that pays for its disk (HRevolve, by default) may take more; one that also stores steps (Mixed) may take fewer.
    """
    import checkpoint_schedules as known

    warnings.filterwarnings("ignore", "Numba not available")
    made = {
        "Revolve": lambda n, ram, _: known.Revolve(n, ram),
        "Multistage": known.MultistageCheckpointSchedule,
        "Mixed": lambda n, ram, _: known.MixedCheckpointSchedule(n, ram, storage=known.StorageType.RAM),
        "HRevolve": known.HRevolve,
        "HRevolve, disk for free": partial(known.HRevolve, wd=0, rd=0),
    }
    cases = sorted((draw.randint(2, 40), draw.randint(1, 8), draw.randint(1, 4)) for _ in range(SCHEDULES))
    print(f"{SCHEDULES} chains of 2 to 40 steps   exceeds   steps, of the optimum   the first that exceeds")
    for name, make in made.items():
        exceeds, ratios = [], []
        for n, ram, disk in cases:
            schedule = make(n, ram, disk)
            slots = ram + disk * schedule.uses_storage_type(known.StorageType.DISK)
            steps, most = simulated(schedule, n)
            if most["RAM"] > ram or most["DISK"] > disk:
                exceeds.append(f"{n} steps, {ram} in RAM, {disk} on DISK: {most}")
            slots = min(slots, n - 1)
            repeats = next(r for r in range(n) if math.comb(slots + r, r) >= n)
            ratios.append(steps / (n + repeats * n - math.comb(slots + repeats, repeats - 1)))
        span = f"{min(ratios):.2f} to {max(ratios):.2f}x"
        print(f"  {name:<28} {len(exceeds):>7}   {span:<21}   {(exceeds or ['none'])[0]}")


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1 << 32)
    print(f"torch {torch.__version__}, seed {seed}")
    parts = {"knapsacks": knapsacks, "budgets": budgets, "sac": sac, "usual": usual, "schedules": schedules}
    for part in sys.argv[2:] or parts:
        torch.manual_seed(seed)
        missing = [name for name in NEEDS.get(part, ()) if importlib.util.find_spec(name) is None]
        if missing:
            print(f"{part}: not tried: {missing[0]} is not installed")
        else:
            parts[part](random.Random(seed))

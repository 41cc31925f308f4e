"""Training steps of the models and plans of rematch-bench in PyTorch.

Usage: torch_steps.py THREADS DEVICE[:tf32] NAME...   prints one JSON line per NAME: MODEL[-bBATCH]/PLAN
"""

import json
import math
import statistics
import sys
import time
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

warnings.filterwarnings("ignore")
THREADS = int(sys.argv[1])
DEVICE, _, PRECISION = sys.argv[2].partition(":")
torch.set_num_threads(THREADS)
torch.backends.cuda.matmul.allow_tf32 = PRECISION == "tf32"
torch.backends.cudnn.allow_tf32 = PRECISION == "tf32"


def mymodel(batch):
    net = nn.Sequential(
        nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    return net, torch.randn(batch, 1024), torch.randn(batch, 10)


def cifar(batch):
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * 8 * 8, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10),
    )
    return net, torch.randn(batch, 3, 32, 32), torch.randn(batch, 10)


def deep64(batch):
    layers = []
    for _ in range(64):
        layers += [nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers), torch.randn(batch, 256), torch.randn(batch, 256)


MODELS = {"mymodel": (mymodel, 32), "cifar": (cifar, 64), "deep64": (deep64, 64)}


def segments_of(plan, layers):
    return {
        "plain": 0, "k2": 2, "k4": 4, "sqrt": round(math.sqrt(layers)), "every": layers,
    }[plan.removesuffix("-reentrant")]


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def step(net, x, target, segments, reentrant):
    net.zero_grad(set_to_none=True)
    x.grad = None
    y = checkpoint_sequential(net, segments, x, use_reentrant=reentrant) if segments else net(x)
    nn.functional.mse_loss(y, target).backward()
    sync()


def peak_bytes(net, x, target, segments, reentrant):
    """Requested bytes at the peak of a step, parameters and data included."""
    net.zero_grad(set_to_none=True)
    x.grad = None
    kept = sum(t.numel() * t.element_size() for t in [*net.parameters(), x, target])
    if DEVICE == "cuda":
        sync()
        torch.cuda.reset_peak_memory_stats()
        step(net, x, target, segments, reentrant)
        return torch.cuda.memory_stats()["requested_bytes.all.peak"]
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step(net, x, target, segments, reentrant)
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return kept + peak


for name in sys.argv[3:]:
    model, plan = name.split("/")
    model, _, batch = model.partition("-b")
    make, usual = MODELS[model]
    torch.manual_seed(0)
    net, x, target = (t.to(DEVICE) for t in make(int(batch or usual)))
    x.requires_grad_()
    segments = segments_of(plan, len(net))
    reentrant = plan.endswith("-reentrant")
    for _ in range(3):
        step(net, x, target, segments, reentrant)
    times = []
    while len(times) < 9 or (sum(times) < 400 and len(times) < 200):
        begin = time.perf_counter()
        step(net, x, target, segments, reentrant)
        times.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({
        "name": name, "torch": torch.__version__, "ms": statistics.median(times),
        "peak_bytes": peak_bytes(net, x, target, segments, reentrant),
    }), flush=True)

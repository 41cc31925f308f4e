"""Training steps of the models of bench/engine_steps.cpp in PyTorch, plain and checkpointed.

Usage: torch_steps.py THREADS DEVICE[:tf32] [MODEL:BATCH ...]   prints one JSON line per (model, plan)
"""

import json
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


MODELS = {"mymodel": (mymodel, [0, 2, 5]), "cifar": (cifar, [0, 2, 4]), "deep64": (deep64, [0, 8, 16])}


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def step(net, x, target, segments, reentrant):
    net.zero_grad(set_to_none=True)
    x.grad = None
    y = checkpoint_sequential(net, segments, x, use_reentrant=reentrant) if segments else net(x)
    nn.functional.mse_loss(y, target).backward()
    sync()


for named in sys.argv[3:] or ["mymodel:32", "cifar:64", "deep64:64"]:
    name, batch = named.split(":")
    make, plans = MODELS[name]
    torch.manual_seed(0)
    net, x, target = (t.to(DEVICE) for t in make(int(batch)))
    x.requires_grad_()
    for segments in plans:
        for reentrant in [False] if segments == 0 else [False, True]:
            for _ in range(3):
                step(net, x, target, segments, reentrant)
            if DEVICE == "cuda":
                torch.cuda.reset_peak_memory_stats()
            times = []
            for _ in range(15):
                begin = time.perf_counter()
                step(net, x, target, segments, reentrant)
                times.append(1e3 * (time.perf_counter() - begin))
            variant = "plain" if segments == 0 else "reentrant" if reentrant else "nonreentrant"
            row = {"name": f"{name}/b{batch}/{segments}/{variant}/{DEVICE}", "torch": torch.__version__}
            row["ms"] = statistics.median(times)
            if DEVICE == "cuda":
                row["peak_bytes"] = torch.cuda.max_memory_allocated()
            print(json.dumps(row), flush=True)

"""Training steps of the models and plans of rematch-bench in PyTorch.

Reads requests from stdin, one JSON object a line, and answers each with one JSON line per plan and
repetition, then an empty line:
    {"model": "cifar", "plans": ["plain", "k2"], "threads": 1, "repetitions": 3, "seconds": 0.1}
MODEL-bN is the model at batch N. Arguments: DEVICE [tf32].
"""

import itertools
import json
import math
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

DEVICE = sys.argv[1]
TF32 = "tf32" in sys.argv[2:]
torch.backends.cuda.matmul.allow_tf32 = TF32
torch.backends.cudnn.allow_tf32 = TF32


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


class AttentionHalf(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.queries = nn.LayerNorm(256), nn.Linear(256, 256)
        self.memory, self.output = nn.Linear(256, 512), nn.Linear(256, 256)

    def forward(self, x):
        y = self.norm(x)
        heads = [t.unflatten(2, (8, 32)).transpose(1, 2)
                 for t in (self.queries(y), *self.memory(y).chunk(2, 2))]
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.output(y.transpose(1, 2).flatten(2))


class PerceptronHalf(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


def transformer(batch):
    net = nn.Sequential(*(half() for _ in range(4) for half in (AttentionHalf, PerceptronHalf)))
    return net, torch.randn(batch, 256, 256), torch.randn(batch, 256, 256)


MODELS = {"mymodel": (mymodel, 32), "cifar": (cifar, 64), "deep64": (deep64, 64),
          "transformer": (transformer, 8)}


def segments_of(plan, layers):
    return {
        "plain": 0, "k2": 2, "k4": 4, "sqrt": round(math.sqrt(layers)), "every": layers,
    }[plan.removesuffix("-reentrant")]


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class Model:
    """One model with its data, kept for as long as it is asked for."""

    def __init__(self, name):
        model, _, batch = name.partition("-b")
        make, usual = MODELS[model]
        torch.manual_seed(0)
        self.name = name
        self.net, self.x, self.target = (t.to(DEVICE) for t in make(int(batch or usual)))
        self.x.requires_grad_()
        self.peaks = {}

    def clear(self):
        self.net.zero_grad(set_to_none=True)
        self.x.grad = None

    def step(self, plan):
        self.clear()
        segments = segments_of(plan, len(self.net))
        if segments:
            reentrant = plan.endswith("-reentrant")
            y = checkpoint_sequential(self.net, segments, self.x, use_reentrant=reentrant)
        else:
            y = self.net(self.x)
        nn.functional.mse_loss(y, self.target).backward()
        sync()

    def times(self, plan, seconds):
        """Milliseconds of a step by the wall and by the process's clock, medians."""
        self.step(plan)
        wall, cpu = [], []
        begin = time.perf_counter()
        while len(wall) < 3 or time.perf_counter() - begin < seconds:
            a, b = time.perf_counter(), time.process_time()
            self.step(plan)
            wall.append(1e3 * (time.perf_counter() - a))
            cpu.append(1e3 * (time.process_time() - b))
        return statistics.median(wall), statistics.median(cpu)

    def peak_bytes(self, plan):
        """Requested bytes at the peak of a step, parameters and data included."""
        if plan in self.peaks:
            return self.peaks[plan]
        self.clear()
        kept = sum(t.numel() * t.element_size() for t in [*self.net.parameters(), self.x, self.target])
        if DEVICE == "cuda":
            sync()
            torch.cuda.reset_peak_memory_stats()
            self.step(plan)
            self.peaks[plan] = torch.cuda.memory_stats()["requested_bytes.all.peak"]
            return self.peaks[plan]
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            self.step(plan)
        live = peak = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                live += event.nbytes()
                peak = max(peak, live)
        self.peaks[plan] = kept + peak
        return self.peaks[plan]


model = None
for line in sys.stdin:
    request = json.loads(line)
    torch.set_num_threads(request["threads"])
    if model is None or model.name != request["model"]:
        model = Model(request["model"])
        for plan, _ in itertools.product(request["plans"], range(3)):
            model.step(plan)
    for _ in range(request["repetitions"]):
        for plan in request["plans"]:
            wall, cpu = model.times(plan, request["seconds"])
            print(json.dumps({"plan": plan, "wall": wall, "cpu": cpu}))
    for plan in request["plans"]:
        print(json.dumps({"plan": plan, "peak_bytes": model.peak_bytes(plan),
                          "version": torch.__version__}))
    print(flush=True)

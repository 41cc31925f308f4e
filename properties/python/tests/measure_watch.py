"""Measures what watch() costs, as shares of a training step without it:

    taskset -c 0 python tests/measure_watch.py [WIDTH]...

The model is a transformer of four checkpointed encoder layers, trained with AdamW. A round is a step
without a watch, one with a watch that does not look, and a watched one, in any order; each figure is
a median of ratios within a round, by processor time. `every_100` is the cost of watch(model) in percent.
"""

import json
import random
import statistics
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import rematch


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) for _ in range(4))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


def figures(width, rounds=40):
    torch.manual_seed(0)
    model, rows, length = Encoder(width), 8, max(16, width // 2)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(rows, length, width, requires_grad=True)

    def seconds():
        begin = time.process_time()
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - begin

    order, rng = [None, 1 << 30, 1], random.Random(1)
    times = {every: [] for every in order}
    for _ in range(rounds + 3):
        rng.shuffle(order)  # What ran before leaves its mark on caches.
        for every in order:
            with nullcontext() if every is None else rematch.watch(model, every) as watch:
                times[every].append(seconds())
            assert watch is None or watch.compared == 4 * (every == 1) and not watch.findings
    plain = times[None][3:]
    ratios = [statistics.median(b / a for a, b in zip(plain, times[e][3:], strict=True)) for e in (1 << 30, 1)]
    of_steps = {"unwatched": round(ratios[0], 4), "watched": round(ratios[1], 2), "every_100": round(ratios[1] - 1, 2)}
    return {"width": width, "tokens": rows * length, "step_ms": round(1000 * statistics.median(plain), 1), **of_steps}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for width in map(int, sys.argv[1:] or (32, 64, 128, 256)):
        print(json.dumps(figures(width)), flush=True)

"""Measures what watch() costs, as shares of a training step without it:

    taskset -c 0 python tests/measure_watch.py [WIDTH]...

The model is a transformer of four checkpointed encoder layers, trained with AdamW on 256 tokens. A round is a step of
each of three copies: without a watch, with one that does not look, and watched, in any order. Each figure is a median
of ratios within a round, by processor time, over two rotations; first steps, which look at all, are left out.
`every_100` is the cost of watch(model) in percent.
"""

import json
import random
import statistics
import sys
import time

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


class Training:
    def __init__(self, width, every):
        torch.manual_seed(0)
        self.model, self.x = Encoder(width), torch.randn(8, 32, width, requires_grad=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.watch = None if every is None else rematch.watch(self.model, every)

    def seconds(self):
        begin = time.process_time()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.process_time() - begin


def figures(width):
    plain, unwatched, watched = copies = [Training(width, every) for every in (None, 1 << 30, 1)]
    order, rng, ratios = list(copies), random.Random(1), []
    while watched.watch.rotation.completed < 2:
        rng.shuffle(order)  # What ran before leaves its mark on caches.
        took = {copy: copy.seconds() for copy in order}
        if watched.watch.steps > 3:
            ratios.append((took[plain], took[unwatched] / took[plain], took[watched] / took[plain]))
    assert not watched.watch.findings
    step, other, more = (statistics.median(of) for of in zip(*ratios, strict=True))
    of_steps = {"unwatched": round(other, 4), "watched": round(more, 2), "every_100": round(more - 1, 2)}
    return {"width": width, "tokens": 256, "step_ms": round(1000 * step, 1), **of_steps}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for width in map(int, sys.argv[1:] or (32, 128, 512)):
        print(json.dumps(figures(width)), flush=True)

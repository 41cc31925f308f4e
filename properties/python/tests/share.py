"""Measures whose the time of a hunt is: PyTorch's, the adapter's or the harness's.

    python tests/share.py PATH_TO_REMATCH [--observe cheap|all] [--mix wide] [--cases N]

PyTorch's is what passes within its functions: layers, the loss, checkpoint() and what it does
around the functions that it calls back, backward() and optimizers. In a hunt that observes
everything, this includes the way to the dispatch mode and back. All times are processor time,
without the start of the subject and without the clocks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from time import process_time, thread_time
from typing import Any

SOURCES = Path(__file__).parents[1]
PARTS = {
    "pytorch": "PyTorch",
    "observation": "looking at tensors, hashes, records",
    "adapter": "the rest of the adapter",
    "messages": "JSON, base64, cases",
    "harness": "the harness: cases, forecasts, laws, pipes",
}


class Clock:
    """Counts the time of one part after another."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._part, self._since = "adapter", thread_time()
        # Reading a clock takes time of the part that ends and of the one that begins.
        readings = [thread_time() for _ in range(10_000)]
        self._cost = (readings[-1] - readings[0]) / len(readings)

    def switch(self, part: str) -> str:
        """Begins a part, and returns the one that was running."""
        now, before = thread_time(), self._part
        self.spent[before] += now - self._since - self._cost
        self.spent["clocks"] += self._cost
        self._part, self._since = part, now
        return before

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            outer = self.switch(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch(outer)

        return inner

    def time(self, part: str, owner: Any, names: Iterable[str]) -> None:
        for name in names:
            setattr(owner, name, self.timed(part, getattr(owner, name)))


def serve_timed(observe: str, file: str) -> None:
    """A subject that adds a line with what it spent to `file` when it is over."""
    import torch

    from rematch import protocol, record
    from rematch.frameworks.pytorch import custom, layers, model, policy, run, watch
    from rematch.pytorch import TorchSubject

    clock = Clock()
    compiled = layers.compiled
    layers.compiled = lambda *text: clock.timed("pytorch", compiled(*text))
    clock.time("pytorch", model, ("checkpoint", "checkpoint_sequential"))
    policy.checkpoint = model.checkpoint
    clock.time("pytorch", custom.Instance, ("run",))
    clock.time("pytorch", custom.CustomLayer, ("module",))
    clock.time("pytorch", run, ("loss_of",))
    clock.time("pytorch", torch.Tensor, ("backward",))
    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        clock.time("pytorch", optimizer, ("__init__", "step"))
    clock.time("adapter", model.TorchModel, ("_run_segment", "_run_layer"))
    seen = ("enter", "leave", "returned", "note_bytes", "note_executions")
    clock.time("observation", watch.Watch, seen)
    clock.time("observation", watch.Eye, (*seen, "_pack", "saw"))
    clock.time("observation", run.TorchRun, ("note", "note_random_state"))
    clock.time("observation", record.Record, ("hooks",))
    clock.time("messages", protocol, ("_write", "_case_of"))
    clock.time("messages", protocol.json, ("loads",))
    begin = 0.0

    def warm() -> None:
        nonlocal begin
        protocol_warm()
        clock.spent.clear()
        begin = process_time()

    protocol_warm, protocol._spare_the_collector = protocol._spare_the_collector, warm
    # Time between two requests is the harness's.
    answer = clock.timed("adapter", protocol._Session.answer)
    protocol._Session.answer = lambda *args: answer(*args)
    clock.switch("waiting")
    protocol.serve(TorchSubject(checkpoint=model.checkpoint, observe=observe))
    used = process_time() - begin
    with open(file, "a") as lines:
        lines.write(json.dumps({**clock.spent, "used": used, "start": begin}) + "\n")
    # The end of an interpreter is not timed.
    os._exit(0)


def hunt(program: str, command: str, mix: str, cases: int) -> float:
    """The processor time of a hunt, its subject included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    options = ["--mix", mix, "--cases", str(cases), "--seed", "random", "--jobs", "1"]
    with tempfile.TemporaryDirectory() as folder:
        options += ["--keep-going", "--no-regressions", "--save", folder]
        options += ["--profile", str(SOURCES / "rematch/frameworks/pytorch/profile.json")]
        subprocess.run(
            [program, "check", "--subject", command, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--observe", default="cheap")
    parser.add_argument("--mix", default="wide")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve_timed(given.observe, given.program)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spent.json"
        command = f"exec {sys.executable} {__file__} {file} --observe {given.observe} --serve"
        total = hunt(given.program, command, given.mix, given.cases)
        spent: Counter[str] = Counter()
        for line in file.read_text().splitlines():
            # There are several: a hunt repeats a case in a fresh process now and then.
            spent.update(json.loads(line))
        total -= spent["start"]
    # The clocks are no part of a hunt.
    used, total = spent["used"] - spent["clocks"], total - spent["clocks"]
    own = [part for part in PARTS if part != "harness"]
    within = sum(spent[part] for part in own)
    shares = {part: spent[part] / within * used / total for part in own}
    shares["harness"] = 1 - used / total
    for part, share in shares.items():
        print(f"{100 * share:5.1f} %  {PARTS[part]}")
    print(f"{given.cases / total:5.0f} cases/s, shrinking included")


if __name__ == "__main__":
    main()

"""Measures how many cases a second the PyTorch subject runs, plain and checkpointed each:

    taskset -c 0 python tests/measure.py [--cases N] [--observe cheap|all]

Cases are small perceptrons of 2 to 6 layers. `by_cpu_time` counts the subject's own processor
time, so that it does not depend on what else the machine does (Linux only).
"""

import argparse
import json
import os
import sys
import time

import numpy as np
from cases import chain, run_of, segment
from harness import Harness

KINDS = ["linear", "relu", "dropout", "layer_norm", "gelu", "tanh", "batch_norm"]


def random_case(random: np.random.Generator) -> dict[str, object]:
    layers = ["linear", *map(str, random.choice(KINDS, random.integers(1, 6)))]
    cut = int(random.integers(1, len(layers) + 1))
    variant = str(random.choice(["reentrant", "non_reentrant"]))
    plan, seed = {"segments": [segment(0, cut, variant)]}, int(random.integers(1 << 31))
    return chain(*layers, plan=plan, protocol={"input_requires_grad": True}, seed=seed)


def processor_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--observe", default="cheap")
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    more = {"layer_values": True} if arguments.observe == "all" else {}
    runs = [{**run_of(random_case(random)), **more} for _ in range(arguments.cases)]
    with Harness(sys.executable, "-m", "rematch", "pytorch", "--observe", arguments.observe) as harness:
        harness.hello()
        for run in runs[:20]:
            harness.both(run)
        begin, used = time.perf_counter(), processor_seconds(harness.process.pid)
        for run in runs:
            harness.both(run)
        wall = time.perf_counter() - begin
        used = processor_seconds(harness.process.pid) - used
    rates = {"cases_per_second": round(len(runs) / wall, 1), "by_cpu_time": round(len(runs) / used, 1)}
    print(json.dumps({"observe": arguments.observe, "cases": len(runs), **rates}))


if __name__ == "__main__":
    main()

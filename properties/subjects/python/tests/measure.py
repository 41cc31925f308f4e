"""Measures how many cases a second the PyTorch subject runs, plain and checkpointed each:

    taskset -c 0 python tests/measure.py [--cases N] [--observe cheap|all]

Cases are small perceptrons of 2 to 6 layers. The driver's share is measured, too, and is small.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
from cases import chain, run_of, segment
from harness import Harness

KINDS = ["linear", "relu", "dropout", "layer_norm", "gelu", "tanh", "batch_norm"]


def random_case(random: np.random.Generator) -> dict[str, object]:
    kinds = list(random.choice(KINDS, random.integers(1, 6)))
    layers = ["linear", *map(str, kinds)]
    cut = int(random.integers(1, len(layers) + 1))
    variant = str(random.choice(["reentrant", "non_reentrant"]))
    case = chain(
        *layers,
        plan={"segments": [segment(0, cut, variant)]},
        protocol={"input_requires_grad": True},
    )
    return {**case, "seed": int(random.integers(1 << 31))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--observe", default="cheap")
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    runs = [run_of(random_case(random)) for _ in range(arguments.cases)]
    again = {"checkpointed": True}
    if arguments.observe == "all":
        for run in runs:
            run["layer_values"] = True
    command = (sys.executable, "-m", "rematch", "pytorch", "--observe", arguments.observe)
    with Harness(*command) as harness:
        harness.hello()
        for run in runs[:20]:
            harness.record(**run)
            harness.record(**again)
        begin, own = time.perf_counter(), time.process_time()
        for run in runs:
            harness.record(**run)
            harness.record(**again)
        wall, own = time.perf_counter() - begin, time.process_time() - own
    print(
        json.dumps(
            {
                "observe": arguments.observe,
                "cases": len(runs),
                "cases_per_second": round(len(runs) / wall, 1),
                "cases_per_second_without_driver": round(len(runs) / (wall - own), 1),
            }
        )
    )


if __name__ == "__main__":
    main()

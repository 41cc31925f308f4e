"""Writes what PyTorch computes for every op of the engine: see golden/make_numerics.

One entry per (case, dtype), one per line, so that a difference names the case. An entry holds
  name, op, dtype, attributes
  inputs            operands by name, in the order of the engine's op
  outputs           what the op returned
  output_gradients  the cotangents given to backward
  gradients         by operand, for those that are differentiable
  after             operands that the op changed in place, by name
Entries of optimizers and models have `inputs` and `after` only. All values are exact: inputs are
multiples of 1/128, and floats are written with the shortest decimals that give the same float64.
"""

import json
import sys

import torch
from ops import all_ops
from training import all_models, all_optimizers

FORMAT = 1


def main(path):
    torch.set_num_threads(1)
    entries = [*all_ops(), *all_optimizers(), *all_models()]
    head = {
        "format": FORMAT,
        "regenerate": "golden/make_numerics",
        "torch": torch.__version__.split("+")[0],
    }
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write("{\n")
        for key, value in head.items():
            file.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
        file.write('"ops": [\n')
        file.write(",\n".join(json.dumps(entry, allow_nan=False) for entry in entries))
        file.write("\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1])

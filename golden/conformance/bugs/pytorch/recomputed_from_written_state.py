"""torch.compile: the backward copies an input again that the forward has written to since.

The forward uses a clone of a state, and then writes to the state. The partitioner saves the state instead of the clone, and
clones it again in the backward, which is after the write. No checkpoint is needed.

severity: silent, wrong gradients
promise: none; eagerly the gradient is 3
cause: torch/_functorch/partitioners.py: a clone of a mutated input counts as free to recompute
"""

import sys

import torch

x = torch.ones(2, requires_grad=True)


def is_wrong(name, backend, writes=True):
    def step(x, state):
        y = x * state.clone()
        if writes:
            state.mul_(2)
        return y.sum()

    loss = torch.compile(step, backend=backend)(x, torch.full((2,), 3.0))
    got = torch.autograd.grad(loss, x)[0].tolist()
    print(f"{name}: {'WRONG' if got != [3, 3] else 'right'}: gradient {got}, expected [3.0, 3.0]")
    return got != [3, 3]


is_wrong("control: backend eager", "eager")
is_wrong("control: no write", "aot_eager", writes=False)
sys.exit(is_wrong("a write behind the clone", "aot_eager"))

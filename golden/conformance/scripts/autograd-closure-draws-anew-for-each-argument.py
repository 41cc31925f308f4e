# dropout-masks: A recomputation of a random layer draws what its forward drew, and every forward draws what the plain run drew.
# at: step 0, microbatch 0, layer 0 (dropout), execution 1
# expected: 3 elements from offset 0, hash 0xb6df44f4720d1e4e
# got: 3 elements from offset 0, hash 0x6543df8aa5b774fe
# autograd 1.9.1; run: python this_file.py
import sys

import autograd.builtins
import autograd.numpy as anp
import numpy as np


def checkpoint_of(function):
    """autograd.checkpoint, of which a plain tuple as the result would have no gradient."""

    def boxed(*arguments):
        y = function(*arguments)
        return autograd.builtins.tuple(y) if isinstance(y, tuple) else y

    return autograd.checkpoint(boxed)


x = np.array([[0.1], [-0.1], [0.6]], np.float64)
target = np.array([[0.285053014], [0.543737201], [0.642097582]], np.float64)


def plain(x):
    v0 = (x * (anp.random.rand(*x.shape) >= 0.5) / (1 - 0.5))
    return (v0,)


def checkpointed(x):
    def checkpointed_segment_0_1(x):
        v0 = (x * (anp.random.rand(*x.shape) >= 0.5) / (1 - 0.5))
        return v0
    v0 = checkpoint_of(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    anp.random.seed(0)

    def objective(x):
        y = model(x)[0]
        return anp.mean((anp.reshape(y, target.shape) - target) ** 2)

    return np.array(autograd.grad(objective, 0)(x)).tolist()


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of x\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of x" if different else "same")
sys.exit(1 if different else 0)

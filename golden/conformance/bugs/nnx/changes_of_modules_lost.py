"""jax.checkpoint() takes modules of flax.nnx as arguments, and drops what the function changes in them.

Counts of generators stay, so that each forward draws the same mask, and running statistics stay as they are. nnx.remat() keeps
both.

severity: silent, one mask for all forwards, statistics lost
versions: flax, jax
promise: none for jax.checkpoint(); nnx.remat() is "a 'lifted' version of" it (its docstring), and modules raise no error
cause: flax/nnx/pytreelib.py: modules are pytrees, so that jax.checkpoint() hands a copy to the function
"""

import sys

import jax
import jax.numpy as jnp
from flax import nnx


def is_wrong(name, around):
    rngs, norm = nnx.Rngs(0), nnx.BatchNorm(1, momentum=0.0, rngs=nnx.Rngs(0))
    dropout = nnx.Dropout(0.5)

    @around
    def masked(x, rngs):
        return dropout(x, rngs=rngs)

    masks = {tuple(masked(jnp.ones(16), rngs).tolist()) for _ in range(4)}
    around(lambda x, norm: norm(x))(jnp.array([[1.0], [3.0]]), norm)
    mean = norm.mean[0].item()
    wrong = len(masks) != 4 or mean != 2
    print(
        f"{name}: {'WRONG' if wrong else 'right'}: {len(masks)} masks in 4 forwards, expected 4; mean {mean}, expected 2.0"
    )
    return wrong


is_wrong("control: no checkpoint", lambda f: f)
is_wrong("control: nnx.remat", nnx.remat)
sys.exit(is_wrong("jax.checkpoint", jax.checkpoint))

"""nnx.remat(): static arguments, and attributes of modules, that are equal are taken for one, as 1, 1.0 and True.

The function is not traced again for the second: outputs and gradients are those of the first. For static arguments nnx.jit()
tells them apart; for attributes it does not either.

severity: silent, wrong outputs and gradients
versions: flax, jax
promise: "A 'lifted' version of the jax.checkpoint" (docstring of nnx.remat), which promises "the same input/output behavior"
cause: jax/_src/ad_checkpoint.py:456, WrapHashably.__eq__, for arguments; flax/nnx/graphlib.py:623, GraphDef, for attributes: a
    static part of the arguments whose == is that of the values, and no types, in the key of JAX's cache of traces
"""

import sys
from functools import partial

import jax.numpy as jnp
from flax import nnx


class Halved(nnx.Module):
    def __init__(self, n):
        self.n = n


def is_wrong(name, around, numbers=(2, 2.0), given=lambda n: n, of=lambda n: n):
    halved = around(lambda x, n: x // of(n) if isinstance(of(n), int) else x / of(n))
    got = tuple(float(halved(jnp.array(3), given(n))) for n in numbers)
    print(f"{name}: {'WRONG' if got != (1.0, 1.5) else 'right'}: outputs {got}, expected (1.0, 1.5)")
    return got != (1.0, 1.5)


static, attribute = partial(nnx.remat, static_argnums=1), {"given": Halved, "of": lambda module: module.n}
is_wrong("control: no remat", lambda f: f)
is_wrong("control: nnx.jit of an argument", partial(nnx.jit, static_argnums=1))
is_wrong("control: arguments that differ", static, (3, 2.0))
is_wrong("control: attributes that differ", nnx.remat, (3, 2.0), **attribute)
wrong = is_wrong("an argument", static)
wrong |= is_wrong("an attribute", nnx.remat, **attribute)
sys.exit(wrong)

"""jax.checkpoint, outside of jit: a constant array of one boolean comes back as Python's True or False.

Python's ~True is -2, and True + True is 2, where they are False and True for an array: a flag or a mask of one element that a
function returns beside its result then counts wrongly. Constants of other types come back as NumPy arrays and floats.

severity: silent, wrong numbers
versions: jax
promise: "A function (callable) with the same input/output behavior as `fun`" (docstring of jax.checkpoint)
cause: jax/_src/ad_checkpoint.py:605, remat_impl: returns what core.eval_jaxpr() reads, for a literal its value and no array
"""

import sys

import jax
import jax.numpy as jnp


def is_wrong(name, around, flag=True):
    kept = around(lambda x: (x, jnp.array(flag)))(1.0)[1]
    loss = jax.grad(lambda x: x * ~around(lambda x: (x, jnp.array(flag)))(x)[1])
    got, expected = (float(jnp.sum(2.0 * ~kept)), float(loss(1.0))), (2.0 * (not flag), 1.0 * (not flag))
    print(f"{name}: {'WRONG' if got != expected else 'right'}: output and gradient {got}, expected {expected}")
    return got != expected


is_wrong("control: no checkpoint", lambda f: f)
is_wrong("control: jax.jit", jax.jit)
is_wrong("control: jax.checkpoint in jax.jit", lambda f: jax.jit(jax.checkpoint(f)))
wrong = is_wrong("True", jax.checkpoint)
wrong |= is_wrong("False", jax.checkpoint, False)
sys.exit(wrong)

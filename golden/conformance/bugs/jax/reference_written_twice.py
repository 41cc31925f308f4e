"""jax.checkpoint: a reference that the function closes over and writes is written once more in the backward.

The recomputation reads the reference as the forward left it, and writes to it again: gradients belong to another value than
the outputs, and the value moves on twice.

severity: silent, wrong gradients and values
versions: jax
promise: 'running this program should print "2.0" and not "3.0"' (jax-ml/jax#33050, merged)
cause: jax/_src/ad_checkpoint.py: effects on references are part of what is computed again
"""

import sys

import jax
import jax.numpy as jnp


def is_wrong(name, around):
    count = jax.new_ref(jnp.array(1.0))

    @around
    def counted(x):
        count[...] = count[...] + 1
        return jnp.sin(x * count[...])

    _, back = jax.vjp(counted, 1.0)
    got, expected = float(back(1.0)[0]), float(2 * jnp.cos(2.0))
    wrong = bool(abs(got - expected) > 1e-6 or count[...] != 2)
    print(
        f"{name}: {'WRONG' if wrong else 'right'}: gradient {got}, expected {expected}; value {count[...]}, expected 2.0"
    )
    return wrong


is_wrong("control: no checkpoint", lambda f: f)
sys.exit(is_wrong("jax.checkpoint", jax.checkpoint))

"""jax.checkpoint: static arguments that are equal are taken for one, as 1, 1.0 and True.

The function is not traced again for the second: outputs and gradients are those of the first. A branch on the type of an
argument, an integer division or an index is then another function. jax.jit() tells such arguments apart.

severity: silent, wrong outputs and gradients
versions: jax
promise: "`foo` is re-traced every time it is called with a new value of `is_training`" (docstring of jax.checkpoint), and "the
    same input/output behavior as `fun`"
cause: jax/_src/ad_checkpoint.py:456, WrapHashably.__eq__: compares `self.val == other.val` alone, no types; its users are
    keys of the cache of traces (_dyn_args_fun_cached, line 480)
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp


def is_wrong(name, around, numbers=(2, 2.0), expected=(1.0, 1.5)):
    halved = around(lambda x, n: x // n if isinstance(n, int) else x / n)
    got = tuple(float(halved(jnp.array(3), n)) for n in numbers)
    print(f"{name}: {'WRONG' if got != expected else 'right'}: outputs {got}, expected {expected}")
    return got != expected


checkpoint = partial(jax.checkpoint, static_argnums=1)
is_wrong("control: no checkpoint", lambda f: f)
is_wrong("control: jax.jit", partial(jax.jit, static_argnums=1))
is_wrong("control: numbers that differ", checkpoint, (3, 2.0), (1.0, 1.5))
wrong = is_wrong("2, then 2.0", checkpoint)
wrong |= is_wrong("2.0, then 2", checkpoint, (2.0, 2), (1.5, 1.0))
sys.exit(wrong)

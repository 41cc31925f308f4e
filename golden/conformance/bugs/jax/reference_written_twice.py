"""jax.checkpoint: a reference that the function writes is updated twice, once in the forward and again in the backward.

The backward uses y * 2 where the forward used y * 1, and the reference ends at 3 instead of 2. A reference that the function
closes over alike. jax.new_ref(..., kind="no_grad_no_remat"), which 0.10 has, is right. (The Ref guide says "Can't
apply `jax.remat`/`jax.checkpoint` to an impure function", docs/array_refs.md; no error says so.) Shown on the CPU.

severity: silent, wrong gradients and values
versions: jax
promise: 'only run the effects the first time. That is, running this program should print "2.0" and not "3.0"', where the
    program is this one (jax-ml/jax#33050, merged)
cause: jax/_src/state/primitives.py:675-688, _state_partial_eval_custom: `return eqn, eqn, [False], [True], res  # full remat`;
    allowed by jax/_src/state/types.py:83, `remat_allowed_effects.add_type(RefEffect)`
"""

import sys

import jax


def is_wrong(name, around):
    def f(y, x_ref):
        out = y * x_ref[...]
        x_ref[...] += 1
        return out

    x_ref = jax.new_ref(1.0)
    got = float(jax.grad(around(f))(1.0, x_ref)), float(x_ref[...])
    print(f"{name}: {'WRONG' if got != (1, 2) else 'right'}: gradient and value {got}, expected (1.0, 2.0)")
    return got != (1, 2)


is_wrong("control: no checkpoint", lambda f: f)
sys.exit(is_wrong("jax.checkpoint", jax.checkpoint))

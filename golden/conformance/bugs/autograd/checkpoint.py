"""HIPS autograd: checkpoint() draws a mask for each argument, and arrays that are closed over get no gradient.

It does not preserve the random state, and computes the function again within the forward, once for each argument that has a
gradient, so that it saves no memory either.

severity: silent, wrong gradients
versions: autograd 1.9.1; no longer maintained
promise: none
cause: autograd/differential_operators.py, checkpoint
searched: 2026-08
"""

import sys

import autograd
import autograd.numpy as np

w = np.arange(1.0, 9.0)


def dropped(x, w):
    return x * w * (np.random.rand(8) < 0.5)


for name, call in (("control: plain", dropped), ("checkpoint", autograd.checkpoint(dropped))):
    of_x, of_w = autograd.grad(lambda x, w, call=call: np.sum(call(x, w)), (0, 1))(w, w)
    same = ((of_x != 0) == (of_w != 0)).all()
    print(f"{name}: one mask for both arguments: {'right' if same else 'WRONG'}")


def closed_over(w, around):
    return np.sum(around(lambda x: x * w)(w))


for name, around in (("control: plain", lambda f: f), ("checkpoint", autograd.checkpoint)):
    is_right = (autograd.grad(closed_over)(w, around) == 2 * w).all()
    print(f"{name}: gradient of an array closed over: {'right' if is_right else 'WRONG'}")
sys.exit(not (same and is_right))

"""Frameworks whose arrays are those of JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rematch.frameworks.jax.jax_layers import LOSSES, Steps
from rematch.frameworks.jax.saved import OF_STEPS, WITHIN, within
from rematch.subjects.framework import SEEN, Framework


class OnJax(Framework):
    """A framework that differentiates functions of JAX's arrays, mostly in compiled steps."""

    losses = LOSSES
    whole_segments = True
    detach = "lax.stop_gradient({x})"
    enter_line = ""
    within = WITHIN
    observed = SEEN | OF_STEPS
    script_array = "jnp.array({array})"
    cases_per_shape = 2

    def __init__(self) -> None:
        self._steps = Steps()
        super().__init__()
        self.names["within"] = within

    def array(self, a: np.ndarray) -> Any:
        return jnp.asarray(a)

    def drop_compiled(self) -> None:
        jax.clear_caches()

# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A method can be checkpointed where it is defined. Not so (method) with jax.checkpoint: TypeError: Cannot interpret value of type <class 'rematch.adapters.jax_promises.method.<locals>.Layer'> as an abstract array; it does not have a dtype attribute, plain 6.0
# jax 0.10.2; run: python this_file.py
import os

# Otherwise XLA rounds an operation by what else is compiled with it.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_disable_hlo_passes=fusion,algsimp,constant_folding"
)
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = lambda step: step
import numpy as np


def method(checkpoint):
    """A method can be checkpointed where it is defined."""

    class Layer:
        scale = 3.0

        @checkpoint
        def __call__(self, x):
            return x * x * self.scale

    return jax.grad(lambda x: Layer()(x))(1.0)


def outcome(wrap):
    try:
        found = method(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(jax.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")

# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Results may be text. Not so (text_result) with jax.checkpoint: TypeError: function <lambda> at rematch/adapters/promises/jax.py:96 traced for checkpoint / remat returned a value of type <class 'str'> at output component [1], which is not a valid JAX type, plain 2.0
# jax 0.10.2 policies; run: python this_file.py
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


def text_result(checkpoint):
    """Results may be text."""
    return jax.grad(lambda x: checkpoint(lambda x: (x * 2, "double"))(x)[0])(1.0)


def outcome(wrap):
    try:
        found = text_result(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(jax.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")

# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Inside, NumPy arrays are NumPy arrays. Not so (numpy_argument) with eqx.filter_checkpoint: TracerArrayConversionError: The numpy.ndarray conversion method __array__() was called on traced array with shape float64[2]
# The error occurred while tracing the function fun_checkpoint at site-packages/equinox/_ad.py:1174 for checkpoint / remat. This concrete value was not available in Python because it depends on the value of the argument _dynamic[0][1].
# See https://docs.jax.dev/en/latest/errors.html#jax.errors.TracerArrayConversionError, plain 5.0
# equinox 0.13.8; run: python this_file.py
import os

# Otherwise XLA rounds an operation by what else is compiled with it.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_disable_hlo_passes=fusion,algsimp,constant_folding "
    # Compiles twice as fast.
    "--xla_cpu_use_fusion_emitters=false"
)
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
import equinox as eqx
import numpy as np


def numpy_argument(checkpoint):
    """Inside, NumPy arrays are NumPy arrays."""
    block = checkpoint(lambda x, a: x * np.linalg.norm(a))
    return jax.grad(lambda x: block(x, np.array([3.0, 4.0])))(1.0)


def outcome(wrap):
    try:
        found = numpy_argument(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(eqx.filter_checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)

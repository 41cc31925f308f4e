# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A reference that is counted up is counted up once. Not so (written_reference) with jax.checkpoint: [0.0, 3.0, 4.0], plain [0.0, 2.0, 3.0]
# jax 0.10.2; run: python this_file.py
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
compiled = lambda step: step
import numpy as np


def written_reference(checkpoint):
    """A reference that is counted up is counted up once."""
    count = jax.new_ref(jnp.float32(2.0))

    def block(x):
        y = jnp.sin(x) * count[...]
        count[...] = count[...] + 1
        return y

    return [*jax.value_and_grad(checkpoint(block))(0.0), count[...]]


def outcome(wrap):
    try:
        found = written_reference(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(jax.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)

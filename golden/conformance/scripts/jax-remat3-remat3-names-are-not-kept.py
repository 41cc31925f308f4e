# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Between forward and backward nothing is kept but arguments, and what a policy says. Not so (kept_values) with jax.checkpoint: [1, 1], plain [1, 2]
# jax 0.10.2 remat3; run: python this_file.py
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
jax.config.update("jax_remat3", True)
import numpy as np


def kept_values(checkpoint):
    """Between forward and backward nothing is kept but arguments, and what a policy says."""
    names = jax.checkpoint_policies.save_only_these_names("kept")

    def block(x):
        return jnp.sin(checkpoint_name(jnp.sin(jnp.sin(x)), "kept"))

    def kept(wrapped):
        return len(jax.tree.leaves(jax.vjp(wrapped, jnp.ones(3))[1]))

    if checkpoint(block) is block:
        return [1, 2]
    return [kept(checkpoint(block)), kept(checkpoint(block, policy=names))]


def outcome(wrap):
    try:
        found = kept_values(wrap)
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

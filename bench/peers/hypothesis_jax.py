"""JAX's jax.checkpoint() under Hypothesis, with layers of flax.nnx: hypothesis_jax.py --help"""

from collections.abc import Callable

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from gradients import SAFE, Case, Layer, Meeting, Peer, main


def host_dropout(x: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    mask = jax.pure_callback(lambda: (np.random.random(x.shape) < 0.5).astype(np.float32), shape)
    return x * mask


def running_scale() -> Callable[[jax.Array], jax.Array]:
    """Scales by the mean of what came before."""
    mean = jax.new_ref(jnp.ones(()))

    def scale(x: jax.Array) -> jax.Array:
        before = mean[...]
        mean[...] = 0.9 * before + 0.1 * jax.lax.stop_gradient(x).mean()
        return x * before

    return scale


def make(layer: Layer, rngs: nnx.Rngs) -> nnx.Module:
    i, o = layer.inputs, layer.outputs
    return {
        "linear": lambda: nnx.Linear(i, o, rngs=rngs),
        "conv": lambda: nnx.Conv(i, o, (3, 3), rngs=rngs),
        "relu": lambda: jax.nn.relu,
        "gelu": lambda: jax.nn.gelu,
        "tanh": lambda: jnp.tanh,
        "layer_norm": lambda: nnx.LayerNorm(i, rngs=rngs),
        "pool": lambda: lambda x: nnx.max_pool(x, (2, 2), (2, 2)),
        "flatten": lambda: lambda x: x.reshape(len(x), -1),
        "dropout": lambda: nnx.Dropout(0.25, rngs=rngs),
        "host_dropout": lambda: host_dropout,
        "running_scale": running_scale,
        "batch_norm": lambda: nnx.BatchNorm(i, rngs=rngs),
    }[layer.kind]()


def run(case: Case, checkpointed: bool) -> list[np.ndarray]:
    rngs = nnx.Rngs(case.seed)
    np.random.seed(case.seed)
    layers = [make(layer, rngs) for layer in case.layers]
    model = nnx.List(nnx.Sequential(*layers[begin:end]) for begin, end in case.segments)
    x = jnp.asarray(case.input())
    if x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)

    def loss_of(model: nnx.List, x: jax.Array) -> jax.Array:
        for segment in model:
            call = lambda segment, x: segment(x)  # noqa: E731
            x = (nnx.remat(call) if checkpointed else call)(segment, x)
        return (x**2).sum()

    step = nnx.value_and_grad(loss_of, argnums=(0, 1))
    loss, gradients = nnx.jit(step)(model, x)
    return [np.asarray(a) for a in (loss, *jax.tree.leaves(gradients))]


main(
    Peer(
        {"jax": jax.__version__, "flax": flax.__version__},
        run,
        [*SAFE, "dropout", "batch_norm"],
        {},
        {
            "host-callback-draws-anew": Meeting(["host_dropout"]),
            "reference-written-twice": Meeting(["running_scale"]),
        },
        # The two steps are compiled each for itself, and round differently.
        tolerance=1e-4,
    )
)

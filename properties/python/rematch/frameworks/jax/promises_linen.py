"""Promises that users of `nn.remat()` of flax.linen rely on; it wraps classes of modules."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from rematch.subjects.promises import promises_in


def wrapper(remat: Callable[..., Any]) -> Any:
    """The wrapper of classes that goes with a checkpoint."""
    return nn.remat if remat is nnx.remat else remat


def linen_names(checkpoint):
    """linen: a checkpointed layer has the name and the initial weights of the layer."""
    remat = wrapper(checkpoint)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return remat(nn.Dense)(2)(x)

    found = Block().init(jax.random.key(0), jnp.ones((1, 2)))["params"]
    return [list(found) == ["Dense_0"], *jax.tree.leaves(found)[1].ravel()]


def linen_masks(checkpoint):
    """linen: a checkpointed layer draws the same mask as the plain one."""
    remat = wrapper(checkpoint)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return remat(nn.Dropout)(0.5, deterministic=False)(x)

    return Block().apply({}, jnp.ones(9), rngs={"dropout": jax.random.key(1)})


def linen_given_names(checkpoint):
    """linen: layers with names have the same initial weights, masks and gradients."""
    remat = wrapper(checkpoint)

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=False)(nn.Dense(2)(x))

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = remat(Layer)(name="a")(x)
            return remat(Layer)(name="b")(nn.Dropout(0.5, deterministic=False)(x))

    x, rngs = jnp.ones((3, 2)), {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    made = Block().init(rngs, x)
    grad = jax.grad(lambda v: Block().apply(v, x, rngs={"dropout": jax.random.key(2)}).sum())
    return [a.ravel()[0] for a in jax.tree.leaves((made, grad(made)))]


def linen_method(checkpoint):
    """linen: a method that is checkpointed where it is defined has the same initial weights."""
    remat = wrapper(checkpoint)

    class Block(nn.Module):
        @remat
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x)

    return Block().init(jax.random.key(0), jnp.ones((1, 2)))["params"]["Dense_0"]["kernel"]


def linen_statistics(checkpoint):
    """linen: running statistics, and what is sown, are changed once."""
    remat = wrapper(checkpoint)

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.sow("intermediates", "seen", x.sum())
            calls = self.variable("batch_stats", "calls", lambda: 0)
            calls.value += 1
            return nn.BatchNorm(use_running_average=False)(x)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return remat(Layer)(name="a")(x)

    x = jnp.array([[1.0, 2.0], [3.0, 8.0]])
    made = Block().init(jax.random.key(0), x)
    made.pop("intermediates", None)

    def loss(x):
        y, changed = Block().apply(made, x, mutable=["batch_stats", "intermediates"])
        return y.sum(), changed

    changed = jax.grad(loss, has_aux=True)(x)[1]
    return [float(jnp.sum(a)) for a in jax.tree.leaves(changed)]


class Branches(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        return x * 2 if train else x


def linen_flag(checkpoint):
    """linen: the flag `train` may be given by position."""
    return wrapper(checkpoint)(Branches)().apply({}, jnp.ones(2), True)


def linen_static_flag(checkpoint):
    """linen: the flag `train` may be left out if it is static and has a default."""
    layer = wrapper(checkpoint)(Branches, static_argnums=2)()
    return [layer.apply({}, jnp.ones(2), False), layer.apply({}, jnp.ones(2))]


def linen_static_keyword(checkpoint):
    """linen: the flag `train` may be given by keyword if it is static."""
    return wrapper(checkpoint)(Branches, static_argnums=2)().apply({}, jnp.ones(2), train=False)


def linen_other_method(checkpoint):
    """linen: other methods of a checkpointed layer can be called."""
    remat = wrapper(checkpoint)

    class Block(nn.Module):
        def setup(self):
            self.embed = remat(nn.Embed)(3, 2)

        def __call__(self, tokens):
            return self.embed.attend(self.embed(tokens)).sum()

    made = Block().init(jax.random.key(0), jnp.array([0, 2]))
    found = jax.grad(lambda v: Block().apply(v, jnp.array([0, 2])))(made)
    return found["params"]["embed"]["embedding"]


def linen_shared(checkpoint):
    """linen: a checkpointed layer may be called twice, and given to another layer."""
    remat = wrapper(checkpoint)

    class Outer(nn.Module):
        inner: nn.Module

        def __call__(self, x):
            return self.inner(x) * 2

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            layer = remat(nn.Dense)(2, name="a")
            return remat(Outer)(layer, name="b")(layer(layer(x)))

    made = Block().init(jax.random.key(0), jnp.ones((1, 2)))
    found = jax.grad(lambda v: Block().apply(v, jnp.ones((1, 2))).sum())(made)
    return jax.tree.leaves(found)[1]


def linen_loop(checkpoint):
    """linen: nn.scan() runs a checkpointed layer, with weights and masks as without."""
    remat = wrapper(checkpoint)

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return nn.Dropout(0.5, deterministic=False)(nn.Dense(2)(x)), None

    over = {"params": 0}
    rngs = {"params": True, "dropout": True}

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            layers = nn.scan(remat(Layer), variable_axes=over, split_rngs=rngs, length=3)
            return layers(name="a")(x, None)[0]

    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    made = Block().init(keys, jnp.ones((3, 2)))
    grad = jax.grad(lambda v: Block().apply(v, jnp.ones((3, 2)), rngs=keys).sum())(made)
    return [round(float(a.sum()), 5) for a in jax.tree.leaves((made, grad))]


PROMISES = promises_in(globals())

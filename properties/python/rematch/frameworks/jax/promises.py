"""Promises that users of `jax.checkpoint()` rely on beside equal gradients of float arrays."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rematch.subjects.promises import promises_in
from rematch.subjects.promises_of_any import of_any


def gradients(objective, *numbers):
    return list(jax.grad(objective, tuple(range(len(numbers))))(*numbers))


def integer_argument(checkpoint):
    """A checkpointed function may take integers, the tokens of an embedding for example."""
    tokens = jnp.array([2, 0, 2])
    look_up = checkpoint(lambda table, tokens: table[tokens])
    return jax.grad(lambda table: look_up(table, tokens).sum())(jnp.ones((3, 2)))


def integer_result(checkpoint):
    """It may return integers, truth values and random keys beside what is differentiated."""

    def block(x):
        return jnp.sin(x), jnp.argmax(x), x > 1, jax.random.key(3)

    def loss(x):
        y, index, mask, key = checkpoint(block)(x)
        return (y[index] * jnp.where(mask, 3, 2) * jax.random.bernoulli(key, 0.5, (3,))).sum()

    return jax.grad(loss)(jnp.array([1.0, 4.0, 2.0]))


def flag(checkpoint):
    """An argument may be a truth value that the function branches on."""
    block = checkpoint(lambda x, train: x * 2 if train else x)
    return jax.grad(lambda x: block(x, True))(1.0)


def static_flag(checkpoint):
    """It may branch on a static argument, which is counted from the end, too."""
    block = checkpoint(lambda x, name, train: x * 2 if train else x, static_argnums=(1, -1))
    return jax.grad(lambda x: block(x, "a", True) * block(x, "b", False))(3.0)


def static_keyword(checkpoint):
    """A static argument may be given by keyword."""
    block = checkpoint(lambda x, train: x * 2 if train else x, static_argnums=1)
    return jax.grad(lambda x: block(x, train=True))(1.0)


def static_default(checkpoint):
    """A static argument may be left out if it has a default."""
    block = checkpoint(lambda x, train=True: x * 2 if train else x, static_argnums=1)
    return jax.grad(block)(1.0)


def static_equal(checkpoint):
    """Static arguments of different types are told apart, also if they are equal."""
    block = checkpoint(lambda x, s: x * (2 if isinstance(s, float) else 3), static_argnums=1)
    return [jax.grad(lambda x, s=s: block(x, s))(1.0) for s in (1, 1.0)]


def static_array(checkpoint):
    """A static argument may be a NumPy array."""
    block = checkpoint(lambda x, s: x * s.sum(), static_argnums=1)
    return jax.grad(lambda x: block(x, np.ones(2)))(1.0)


def number_as_shape(checkpoint):
    """A number may be a shape."""
    block = checkpoint(lambda x, n: jnp.full((n,), x).sum())
    return jax.grad(lambda x: block(x, 3))(1.0)


def number_as_power(checkpoint):
    """A number may be an exponent, and negative numbers have powers."""
    power = checkpoint(lambda x, n: x**n)
    return [jax.grad(lambda x, n=n: power(x, n))(x) for x in (-2.0, 0.0) for n in (1, 2)]


def text_argument(checkpoint):
    """Arguments may be text."""
    block = checkpoint(lambda x, name: x * 2 if name == "double" else x)
    return jax.grad(lambda x: block(x, "double"))(1.0)


def text_result(checkpoint):
    """Results may be text."""
    return jax.grad(lambda x: checkpoint(lambda x: (x * 2, "double"))(x)[0])(1.0)


def weak_types(checkpoint):
    """A Python number passes through without a type to which others are promoted."""
    double = checkpoint(lambda x: x * 2)
    return [(double(3.0) * jnp.ones(1, jnp.bfloat16)).dtype == jnp.bfloat16]


def number_stays(checkpoint):
    """A Python number that is returned can still be used as one."""
    size, y = checkpoint(lambda x: (len(x), x * 2))(jnp.ones(2))
    return jnp.zeros(size) + y


def constant_result(checkpoint):
    """What is made as an array is returned as one, constants too."""
    made = checkpoint(lambda x: (x, jnp.full((), True), jnp.full((), 2)))(1.0)[1:]
    return [isinstance(a, jax.Array) for a in made]


def numpy_argument(checkpoint):
    """Inside, NumPy arrays are NumPy arrays."""
    block = checkpoint(lambda x, a: x * np.linalg.norm(a))
    return jax.grad(lambda x: block(x, np.array([3.0, 4.0])))(1.0)


def nested_arguments(checkpoint):
    """Arguments and results may be lists and dictionaries of arrays and None."""
    swap = checkpoint(lambda p, none: {"a": [p["b"][0] * 2, none], "b": (p["a"] ** 2,)})

    def loss(p):
        made = swap(p, None)
        assert made["a"][1] is None and isinstance(made["b"], tuple)
        return (made["a"][0] * made["b"][0]).sum()

    found = jax.grad(loss)({"a": jnp.full(2, 3.0), "b": [jnp.array([3.0, 4.0])]})
    return jnp.concatenate([found["a"], found["b"][0]])


def closed_over(checkpoint):
    """What a checkpointed function closes over gets its gradient, mapped or not."""

    def loss(weight):
        return checkpoint(lambda x: jnp.sin(x) * weight**2)(jnp.zeros(2) + 1).sum()

    return jax.vmap(jax.grad(loss))(jnp.array([0.5, 2.0]))


def closed_over_changes(checkpoint):
    """What a function closes over may change between two calls."""
    now = {"scale": 2.0}
    block = checkpoint(lambda x: x * x * now["scale"])
    first = jax.grad(block)(1.0)
    now["scale"] = 5.0
    return [first, jax.grad(block)(1.0)]


def attribute_changes(checkpoint):
    """So may attributes of the object whose method is checkpointed at each call."""

    class Layer:
        scale = 2.0

        def __call__(self, x):
            return x * x * self.scale

    layer = Layer()
    first = jax.grad(checkpoint(layer.__call__))(1.0)
    layer.scale = 5.0
    return [first, jax.grad(checkpoint(layer.__call__))(1.0)]


def counted_calls(checkpoint):
    """What a function does to Python objects is done once in each call."""
    calls = []

    @checkpoint
    def block(x):
        calls.append(x.shape)
        return x * x

    for _ in range(3):
        jax.grad(block)(1.0)
    return len(calls)


def appended(checkpoint):
    """What a function leaves in a list can be used behind it."""
    kept = []

    def block(x):
        kept.append(x * x)
        return x * 2

    return jax.grad(lambda x: checkpoint(block)(x) + kept[0])(3.0)


def stopped(checkpoint):
    """Gradients stop where they are stopped within."""
    return jax.grad(checkpoint(lambda x: x * lax.stop_gradient(x * x)))(3.0)


def debug_callback(checkpoint):
    """What is printed while debugging is printed once."""
    seen = []

    def block(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x * 2)
        return jnp.sin(x)

    jax.grad(checkpoint(block))(1.0)
    jax.effects_barrier()
    return seen


def host_random(checkpoint):
    """A mask that the host draws is the same in the output and its gradient."""
    generator = np.random.default_rng(3)

    def block(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        drawn = jax.pure_callback(lambda: generator.integers(0, 2, 9).astype(x.dtype), shape)
        return x * x * drawn

    y, pull = jax.vjp(checkpoint(block), jnp.ones(9))
    return y - pull(jnp.ones(9))[0] / 2


def ordered_callback(checkpoint):
    """The host may be called in order."""
    from jax.experimental import io_callback

    seen = []

    def block(x):
        io_callback(lambda: seen.append(1), None, ordered=True)
        return jnp.sin(x)

    jax.grad(checkpoint(block))(1.0)
    jax.effects_barrier()
    return len(seen)


def written_reference(checkpoint):
    """A function that adds 1 to a reference does so once, not again in the recomputation."""
    count = jax.new_ref(jnp.float32(2.0))

    def block(x):
        y = jnp.sin(x) * count[...]
        count[...] = count[...] + 1
        return y

    return [*jax.value_and_grad(checkpoint(block))(0.0), count[...]]


def read_reference(checkpoint):
    """A reference may change before the backward, and gradients are still those of the output."""
    scale = jax.new_ref(jnp.float32(2.0))
    y, pull = jax.vjp(checkpoint(lambda x: jnp.sin(x) * scale[...]), jnp.float32(0))
    scale[...] = 7.0
    return pull(jnp.ones_like(y))[0]


def other_types(checkpoint):
    """An array of another type than float32, such as bfloat16, has a gradient of that type."""
    kinds = ("bfloat16", "float16", "float32", "float64", "complex64")
    square = checkpoint(lambda x: x * x)
    found = {k: jax.grad(lambda x: square(x).real.sum())(jnp.ones(2, k)) for k in kinds}
    return [g.dtype == k and bool((g == 2).all()) for k, g in found.items()]


def integer_gradient(checkpoint):
    """Integers have gradients without bits if they are asked for."""
    return [jax.grad(checkpoint(lambda n: n * 2.0), allow_int=True)(3).dtype == jax.dtypes.float0]


def names_stay(checkpoint):
    """The checkpointed function has the name and the documentation of the function."""

    def block(x):
        """Doubles."""
        return x * 2

    wrapped = checkpoint(block)
    return [wrapped.__name__ == "block", wrapped.__doc__ == "Doubles."]


def method(checkpoint):
    """checkpoint() can decorate a method in its class."""

    class Layer:
        scale = 3.0

        @checkpoint
        def __call__(self, x):
            return x * x * self.scale

    return jax.grad(lambda x: Layer()(x))(1.0)


def written_numpy(checkpoint):
    """An array of NumPy may be filled with other values between forward and backward."""
    x, mask = jnp.ones(64), np.ones(64)
    by_argument = checkpoint(lambda x, mask: x * x * mask)
    first = jax.vjp(lambda x: by_argument(x, mask), x)[1]
    second = jax.vjp(checkpoint(lambda x: x * x * mask), x)[1]
    mask[:] = 7
    return [first(x)[0], second(x)[0]]


def written_between_calls(checkpoint):
    """One that a function closes over may be filled with other values between two calls."""
    mask = np.ones(2)
    block = checkpoint(lambda x: x * x * mask)
    first = jax.vjp(block, jnp.ones(2))[0]
    mask[:] = 7
    return [first, block(jnp.ones(2))]


def object_changes(checkpoint):
    """A static argument may be an object that changes between two calls."""

    class Layer:
        scale = 2.0

    layer, found = Layer(), []
    block = checkpoint(lambda layer, x: x * x * layer.scale, static_argnums=0)
    for layer.scale in (2.0, 5.0):
        found.append(jax.grad(block, 1)(layer, 1.0))
    return found


def host_drawn(checkpoint):
    """Each call draws with NumPy what it uses as numbers."""
    generator = np.random.default_rng(3)
    block = checkpoint(lambda x: x * generator.integers(0, 100, 3))
    return [block(1.0), block(1.0)]


SHARED = of_any("keyword_tensor returns_same_twice unused_output error_passes")
PROMISES = (*promises_in(globals()), *SHARED)

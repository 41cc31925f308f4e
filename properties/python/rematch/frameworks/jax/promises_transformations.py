"""Promises that users of `jax.checkpoint()` rely on around and within it: other transformations, policies,
and settings."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from rematch.subjects.promises import promises_in


def second_derivative(checkpoint):
    """Derivatives of derivatives are right, in all orders of the two modes."""
    f = checkpoint(checkpoint(lambda x: x**4) if checkpoint is jax.checkpoint else lambda x: x**4)
    modes = (jax.grad, jax.jacfwd)
    return [outer(inner(f))(2.0) for outer in modes for inner in modes]


def forward_derivative(checkpoint):
    """jax.jvp() and jax.linearize() go through a checkpointed function."""
    cube = checkpoint(lambda x: x**3)
    return [jax.jvp(cube, (2.0,), (1.0,))[1], jax.linearize(cube, 2.0)[1](5.0)]


def transposed(checkpoint):
    """jax.linear_transpose() goes through a checkpointed function that is linear."""
    return jax.linear_transpose(checkpoint(lambda x: x * 2), 2.0)(3.0)[0]


def vectorized(checkpoint):
    """Gradients of checkpointed functions can be mapped, and sums over what is mapped are right."""
    rows = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    block = checkpoint(lambda x: (x * lax.psum(x * x, "row")).sum())
    return jax.vmap(jax.grad(block), axis_name="row", in_axes=1)(rows)


def loops(checkpoint):
    """Bodies of loops and branches can be checkpointed, and loops and branches run within."""
    body = checkpoint(lambda x, a: (x * a, x * x))

    @checkpoint
    def block(x):
        x, seen = lax.scan(body, x, jnp.array([2.0, 3.0]))
        x = lax.cond(x > 1, checkpoint(lambda x: x * x), lambda x: x, x)
        return lax.fori_loop(0, 2, lambda _, x: checkpoint(lambda x: x * 2)(x), x) + seen.sum()

    return [jax.grad(block)(0.5), jax.jit(jax.grad(block))(2.0)]


def endless_loop(checkpoint):
    """A loop without a known end has a forward derivative and no other."""
    block = checkpoint(lambda x: lax.while_loop(lambda x: x < 100, lambda x: x * x, x))
    try:
        jax.grad(block)(2.0)
    except ValueError as error:
        said = "Reverse-mode differentiation does not work" in str(error)
    return [jax.jvp(block, (2.0,), (1.0,))[1], said]


def own_derivatives(checkpoint):
    """A function's own derivative is used within, and may be checkpointed within."""

    @jax.custom_vjp
    def triple(x):
        return x * 1

    triple.defvjp(lambda x: (triple(x), x), lambda x, g: (checkpoint(lambda g: 3 * g * x)(g),))

    @jax.custom_jvp
    def twice(x):
        return x * 1

    twice.defjvp(lambda x, t: (twice(*x), 2 * t[0] * x[0]))
    return jax.grad(checkpoint(lambda x: triple(x) * twice(x)))(5.0)


def solvers(checkpoint):
    """Solvers with derivatives of their own can be within."""

    def block(x):
        root = lax.custom_root(
            lambda y: y**2 - x,
            1.0,
            lambda f, y: lax.fori_loop(0, 9, lambda _, y: (y + x / y) / 2, y),
            lambda f, y: y / f(1.0),
        )
        return root + lax.custom_linear_solve(lambda y: x * y, x * x, lambda f, b: b / x, symmetric=True)

    return jax.grad(checkpoint(block))(4.0)


def custom_mapping(checkpoint):
    """A function with a rule for jax.vmap() is mapped by it within."""

    @jax.custom_batching.custom_vmap
    def double(x):
        return x * 2

    @double.def_vmap
    def _(size, mapped, x):
        return x * 3, True

    return jax.vmap(checkpoint(lambda x: double(x)))(jnp.ones(2))


def donated(checkpoint):
    """What a checkpointed function was given may be donated by the compiled step around it."""
    block = checkpoint(jax.jit(lambda x: x * x * x))
    return jax.jit(jax.grad(lambda x: block(block(x)).sum()), donate_argnums=0)(jnp.ones(3) * 2)


def policies(checkpoint):
    """No policy changes gradients, nor does the name of a value that does not exist."""
    known = jax.checkpoint_policies

    def block(x):
        return jnp.sum(checkpoint_name(x @ x, "kept") @ x)

    def gradient(**options):
        return jax.grad(checkpoint(block, **options))(jnp.array([[1.0, 2.0], [3.0, 4.0]]))

    return [
        gradient(policy=policy)
        for policy in (
            known.everything_saveable,
            known.nothing_saveable,
            known.dots_saveable,
            known.dots_with_no_batch_dims_saveable,
            known.save_only_these_names("kept"),
            known.save_only_these_names("missing"),
            known.save_any_names_but_these("kept"),
            known.save_anything_except_these_names("missing"),
            known.save_from_both_policies(known.dots_saveable, known.nothing_saveable),
            lambda primitive, *_, **options: primitive.name == "dot_general",
        )
    ]


def offloaded(checkpoint):
    """Nor does keeping a value in the memory of the host."""
    names = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["kept"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    block = checkpoint(lambda x: jnp.sin(checkpoint_name(x * x, "kept")).sum(), policy=names)
    return jax.jit(jax.grad(block))(jnp.zeros(2))


def recomputed(checkpoint):
    """In a compiled step the function is computed again, in one without gradients it is not."""

    def block(x):
        return jnp.sin(jnp.sin(x) @ x) @ x

    def sines(step):
        return jax.jit(step).lower(jnp.ones((4, 4))).compile().as_text().count(" sine(")

    wrapped = checkpoint(block)
    again = 0 if wrapped is block else 2
    return [sines(jax.value_and_grad(lambda x: wrapped(x).sum())) - again, sines(wrapped)]


def recomputed_in_loop(checkpoint):
    """In a loop it is computed again also with prevent_cse=False, which says that it will be."""

    def block(x, _):
        return jnp.sin(jnp.sin(x)), None

    wrapped = checkpoint(block, prevent_cse=False)

    def loss(x):
        return lax.scan(wrapped, x, None, length=3)[0]

    # A fusion computes what it reads for itself, and its text counts twice.
    options = {"xla_disable_hlo_passes": "fusion,cpu-instruction-fusion"}
    text = jax.jit(jax.grad(loss)).lower(1.0).compile(compiler_options=options).as_text()
    return text.count(" sine(") - (0 if wrapped is block else 1)


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


def nothing_leaks(checkpoint):
    """JAX's search for leaked tracers finds none."""
    with jax.checking_leaks():
        block = checkpoint(lambda x: lax.scan(lambda c, _: (c * x, c), x, None, length=2)[0])
        return jax.jit(jax.grad(block))(2.0)


def uncompiled(checkpoint):
    """With jax.disable_jit() gradients are the same, and values can be looked at."""
    with jax.disable_jit():
        return jax.grad(checkpoint(lambda x: x * x if x > 0 else x))(3.0)


def settings(checkpoint):
    """A function that is called again under other settings obeys them, not those of its first call."""
    block = checkpoint(lambda x: x @ x)
    jaxpr = str(jax.make_jaxpr(block)(jnp.ones((2, 2))))
    with jax.default_matmul_precision("highest"):
        found = ["HIGHEST" in jaxpr, "HIGHEST" in str(jax.make_jaxpr(block)(jnp.ones((2, 2))))]
    with jax.enable_x64(False):
        make = checkpoint(lambda x: x * jnp.arange(2.0))
        narrow = make(jnp.float32(1)).dtype == jnp.float32
    return [*found, narrow, make(jnp.float32(1)).dtype == jnp.float32]


def refusal_in_scope(checkpoint):
    """A scope that refuses to promote types refuses it in a function that ran before, too."""
    block = checkpoint(lambda x: x * jnp.arange(2))
    jax.grad(lambda x: block(x).sum())(1.0 * jnp.ones(2))
    try:
        with jax.numpy_dtype_promotion("strict"):
            block(jnp.ones(2))
    except Exception:
        return [True]
    return [False]


def exported(checkpoint):
    """A gradient can be exported with a size that is not known."""
    from jax import export

    (size,) = export.symbolic_shape("n")
    step = jax.jit(jax.grad(checkpoint(lambda x: (x**3).sum())))
    return export.export(step)(jax.ShapeDtypeStruct((size,), "float32")).call(jnp.arange(3, dtype="float32"))


def sharded(checkpoint):
    """Functions that run on each device may be checkpointed, and be in ones that are."""
    over = jax.sharding.PartitionSpec("i")
    mesh = jax.make_mesh((1,), ("i",), (jax.sharding.AxisType.Auto,))

    def scaled(x):
        return x * jax.lax.psum(x, "i")

    each = jax.shard_map(checkpoint(scaled), mesh=mesh, in_specs=over, out_specs=over)
    return jax.jit(jax.grad(lambda x: checkpoint(each)(x).sum()))(jnp.ones(2))


def random_keys(checkpoint):
    """Masks are the same in the output and in its gradient, with any generator, mapped or not."""

    def found(impl):
        keys = jax.random.split(jax.random.key(3, impl=impl), 2)
        block = checkpoint(lambda x, key: x * x * jax.random.bernoulli(key, 0.5, (9,)))
        y, pull = jax.vjp(jax.vmap(block), jnp.ones((2, 9)), keys)
        return y - pull(jnp.ones((2, 9)))[0] / 2

    return [found(impl) for impl in ("threefry2x32", "rbg", "unsafe_rbg")]


def checked(checkpoint):
    """checkify sees a check that fails within, and divisions by zero."""
    from jax.experimental import checkify

    def block(x):
        checkify.check(x < 1, "too large: {}", x)
        return jnp.sin(x)

    failed = checkify.checkify(jax.grad(checkpoint(block)))(2.0)[0].get()
    errors = checkify.float_checks
    divided = checkify.checkify(jax.grad(checkpoint(lambda x: 1 / x)), errors)(0.0)[0].get()
    return ["too large" in failed, "division by zero" in divided]


PROMISES = promises_in(globals())

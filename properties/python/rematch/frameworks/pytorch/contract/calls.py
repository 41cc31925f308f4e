"""What checkpoint() hands to the function, what it hands back, and the forms of calling it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch.contract import promise as p

promises: list[p.Promise] = []
_PLAIN = (UserWarning, "None of the inputs have requires_grad=True")
_UNSAID = (UserWarning, "use_reentrant parameter should be passed explicitly")


def _through_mask(x: Tensor) -> Tensor:
    return torch.dropout(x * 2, 0.5, True) * x


@p.promise(promises)
def arguments_of_any_kind() -> None:
    """function gets all args, tensors or not, in order, in the forward and when it is
    recomputed."""
    for reentrant in p.BOTH:
        x, y, z = p.leaf(), p.leaf(2, 3, 5), p.leaf(7, 1, 4, grad=False)
        word, thing, seen = "word", object(), []

        def function(*given: Any, seen: list[Any] = seen) -> Tensor:
            seen.append(given)
            return (given[1] * given[2]).sin() * given[4]

        given = (word, x, y, thing, z, None)
        api.checkpoint(function, *given, use_reentrant=reentrant).sum().backward()
        p.equal(len(seen), 2, "number of executions")
        for run in seen:
            p.equal(len(run), len(given), "number of arguments")
            for got, wanted in zip(run, given, strict=True):
                if isinstance(wanted, Tensor):
                    p.equal(got.detach(), wanted.detach(), "argument")
                    p.equal(got.requires_grad, wanted.requires_grad, "requires_grad of an argument")
                else:
                    p.expect(got is wanted, f"{wanted!r} expected as argument, got {got!r}")
        p.equal(x.grad, p.gradient((x * y).sin() * z, x), "gradient")
        p.equal(y.grad, p.gradient((x * y).sin() * z, y), "gradient")


@p.promise(promises)
def outputs_of_any_kind() -> None:
    """checkpoint() returns the output of running function on args."""
    thing = object()
    x = p.leaf()
    for returned in (thing, None, [thing], {"a": 1}):
        got = api.checkpoint(lambda x, r=returned: r, x, use_reentrant=False)
        p.expect(got is returned, f"{returned!r} expected, got {got!r}")
    nested = api.checkpoint(lambda x: {"a": [x.sin()], "b": thing}, x, use_reentrant=False)
    p.expect(nested["b"] is thing, "another object returned")
    p.equal(p.gradient(nested["a"][0], x), x.cos(), "gradient")
    for reentrant in p.BOTH:
        out = api.checkpoint(
            lambda x: (x.sin(), thing, x.detach(), x.cos()), x, use_reentrant=reentrant
        )
        p.equal(type(out), tuple, "type of what is returned")
        p.equal(
            [v.requires_grad for v in (out[0], out[2], out[3])][::2], [True, True], "requires_grad"
        )
        p.expect(out[1] is thing, "another object returned")
        x.grad = None
        (2 * out[0] + out[3]).sum().backward()
        wanted = p.gradient(2 * x.sin() + x.cos(), x)
        p.expect(torch.allclose(x.grad, wanted), "gradient")


@p.promise(promises)
def keywords() -> None:
    """With use_reentrant=False, function gets its keyword arguments, in the recomputation as
    well."""
    x, scale, seen = p.leaf(), p.leaf(2, 3, 4), []

    def function(x: Tensor, *, scale: Tensor, power: int) -> Tensor:
        seen.append(power)
        return (x * scale).sin() ** power

    out = api.checkpoint(function, x, scale=scale, power=3, use_reentrant=False)
    got = p.gradient(out, x, scale)
    wanted = p.gradient((x * scale).sin() ** 3, x, scale)
    p.equal(got[0], wanted[0], "gradient of the argument")
    p.equal(got[1], wanted[1], "gradient of the keyword argument")
    p.equal(seen, [3, 3], "keyword argument of each execution")


@p.promise(promises)
def nested_structures() -> None:
    """With use_reentrant=False, tensors in nested structures take part in autograd."""
    x, y, z = p.leaf(), p.leaf(2, 3, 4), p.leaf(1, 0.5, 2)
    given = ({"x": x, "more": [y]}, [z])
    out = api.checkpoint(
        lambda a, b: a["x"].sin() * a["more"][0] * b[0].cos(), *given, use_reentrant=False
    )
    wanted = p.gradient(x.sin() * y * z.cos(), x, y, z)
    for got, expected in zip(p.gradient(out, x, y, z), wanted, strict=True):
        p.equal(got, expected, "gradient of a tensor within a structure")


@p.promise(promises)
def without_any_argument() -> None:
    """With use_reentrant=False, no input has to require grad: weights that function closes over get
    their gradients."""
    weight, plain = p.leaf(), p.leaf(1, 2, 3, grad=False)
    run = p.Counted(lambda *inputs: (weight * 3).sin() * sum(inputs))
    for inputs in ((plain,), (plain, 2)):
        with p.warns():
            out = api.checkpoint(run, *inputs, use_reentrant=False)
        wanted = p.gradient((weight * 3).sin() * sum(inputs), weight)
        p.equal(p.gradient(out, weight), wanted, "gradient of the weight")
    with p.warns():
        out = api.checkpoint(lambda: (weight * 3).sin(), use_reentrant=False)
    p.equal(
        p.gradient(out, weight), p.gradient((weight * 3).sin(), weight), "gradient of the weight"
    )
    p.equal(run.calls, 4, "number of executions")


@p.promise(promises)
def reentrant_without_gradients() -> None:
    """With use_reentrant=True, at least one input must require grad. Otherwise the part has no
    gradients, and a warning says so."""
    weight, plain = p.leaf(), p.leaf(grad=False)
    with p.warns(_PLAIN):
        out = api.checkpoint(lambda x: x * weight, plain, use_reentrant=True)
    p.equal(out.requires_grad, False, "requires_grad of the output")
    with p.warns():
        out = api.checkpoint(lambda x, y: x * y, plain, weight, use_reentrant=True)
    p.equal(out.requires_grad, True, "requires_grad of the output")
    with p.warns():
        out = api.checkpoint(lambda x, y: x * y, weight, plain, use_reentrant=True)
    p.equal(out.requires_grad, True, "requires_grad of the output")


@p.promise(promises)
def variant_left_unsaid() -> None:
    """Without use_reentrant, a warning asks for it, and the variant is the reentrant one."""
    x = p.leaf()
    for given in ({}, {"use_reentrant": None}):
        with p.warns(_UNSAID):
            out = api.checkpoint(torch.sin, x, **given)
        with p.raises(RuntimeError, "use_reentrant=True", ".grad()", "`inputs`"):
            p.gradient(out, x)
        out = api.checkpoint(torch.sin, x, **given)
        x.grad = None
        out.sum().backward()
        p.equal(x.grad, x.cos(), "gradient")
        with p.warns(_UNSAID):
            out = api.checkpoint_sequential([torch.sin, torch.cos], 2, x, **given)
        with p.raises(RuntimeError, "use_reentrant=True", ".grad()", "`inputs`"):
            p.gradient(out, x)
    for reentrant in p.BOTH:
        with p.warns():
            api.checkpoint(torch.sin, x, use_reentrant=reentrant)
            api.checkpoint_sequential([torch.sin, torch.cos], 2, x, use_reentrant=reentrant)


@p.promise(promises)
def sequential() -> None:
    """checkpoint_sequential() checkpoints all of the given number of chunks but the last one; the
    functions are a Sequential or a list."""
    x = p.leaf()
    for reentrant in p.BOTH:
        for count, chunks in ((5, 2), (4, 3), (2, 1)):
            runs = [p.Counted(f) for f in (torch.sin, torch.cos, torch.tanh, torch.exp, torch.erf)]
            runs = runs[:count]
            x.grad = None
            out = api.checkpoint_sequential(runs, chunks, x, use_reentrant=reentrant)
            with torch.enable_grad():
                wanted = x
                for run in runs:
                    wanted = run.function(wanted)
            p.equal(out.detach(), wanted.detach(), "output")
            out.sum().backward()
            p.equal(x.grad, p.gradient(wanted, x), "gradient")
            stored = count // chunks * (chunks - 1)
            got = [run.calls for run in runs]
            wanted_calls = [2 if i < stored else 1 for i in range(count)]
            p.equal(got, wanted_calls, f"executions of {count} functions in {chunks} chunks")
        model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Sigmoid(), torch.nn.Tanh())
        x.grad = None
        api.checkpoint_sequential(model, 2, x, use_reentrant=reentrant).sum().backward()
        p.equal(x.grad, p.gradient(model(x), x), "gradient")


@p.promise(promises)
def sequential_options() -> None:
    """checkpoint_sequential() stashes the RNG state unless preserve_rng_state=False, and knows no
    other keyword arguments."""
    x = p.leaf(*range(1, 65))
    for reentrant in p.BOTH:
        for options, kept in (
            ({}, True),
            ({"preserve_rng_state": True}, True),
            ({"preserve_rng_state": False}, False),
        ):
            x.grad = None
            masks: list[Tensor] = []

            def noisy(x: Tensor, masks: list[Tensor] = masks) -> Tensor:
                masks.append(torch.rand(64))
                return (x * masks[-1]).sin()

            out = api.checkpoint_sequential(
                [noisy, torch.cos], 2, x, use_reentrant=reentrant, **options
            )
            before = torch.get_rng_state()
            out.sum().backward()
            p.equal(torch.equal(*masks), kept, f"same draws in the recomputation with {options}")
            p.equal(
                torch.equal(before, torch.get_rng_state()),
                kept,
                f"RNG state unmoved with {options}",
            )
        with p.raises(ValueError, "Unexpected keyword arguments: surprise"):
            api.checkpoint_sequential([torch.sin], 1, x, use_reentrant=reentrant, surprise=1)


@p.promise(promises, when=p.DECORATES)
def decorator() -> None:
    """Without a function, checkpoint() makes a decorator: calls of what it wraps are checkpointed
    with the options that it was given."""
    x = p.leaf()

    @api.checkpoint(use_reentrant=False, early_stop=False)
    def function(x: Tensor, *, power: int = 1) -> Tensor:
        "What it is for."
        executed.append(power)
        return x.sin() ** power + 1

    executed: list[int] = []
    p.equal((function.__name__, function.__doc__), ("function", "What it is for."), "name and text")
    for power in (2, 3):
        p.equal(
            p.gradient(function(x, power=power), x), p.gradient(x.sin() ** power + 1, x), "gradient"
        )
    p.equal(executed, [2, 2, 3, 3], "keyword argument of each execution")
    with p.warns(_UNSAID):
        out = api.checkpoint()(torch.sin)(x)
    with p.raises(RuntimeError, "use_reentrant=True"):
        p.gradient(out, x)
    with p.raises(ValueError, "Unexpected keyword arguments: a,b"):
        api.checkpoint(use_reentrant=False, a=1, b=2)
    with p.raises(ValueError, "Unexpected keyword arguments: power"):
        api.checkpoint(use_reentrant=True)(function)(x, power=1)


@p.promise(promises, when=p.DECORATES)
def decorator_of_methods() -> None:
    """The decorator can be applied to methods."""

    class Block:
        scale = 3

        @api.checkpoint(use_reentrant=False, determinism_check="none", preserve_rng_state=False)
        def run(self, x: Tensor, power: int = 2) -> Tensor:
            executed.append(self)
            return (x * self.scale).sin() ** power

        # What is no function is no method.
        other = api.checkpoint(use_reentrant=False)(p.Counted(torch.sin))

    executed: list[Any] = []
    x, block = p.leaf(), Block()
    block.scale = 5
    p.equal(p.gradient(block.run(x), x), p.gradient((x * 5).sin() ** 2, x), "gradient")
    p.expect(executed == [block, block], "another self in an execution")
    p.equal(
        p.gradient(Block.run(block, x, power=3), x), p.gradient((x * 5).sin() ** 3, x), "gradient"
    )
    p.equal(block.run.__name__, "run", "name of the method")
    p.equal(p.gradient(block.other(x), x), x.cos().detach(), "gradient of what is no method")
    state = torch.get_rng_state()
    Block.run = api.checkpoint(use_reentrant=False, preserve_rng_state=False)(
        lambda s, x: torch.rand(3) * x.sin()
    )  # type: ignore[method-assign]
    out = block.run(x)
    middle = torch.get_rng_state()
    p.gradient(out, x)
    p.expect(not torch.equal(middle, torch.get_rng_state()), "preserve_rng_state=False is lost")
    torch.set_rng_state(state)


@p.promise(promises, when=p.DECORATES)
def decorator_keeps_options() -> None:
    """The decorator passes on every option that it was given."""
    x = p.leaf()
    entered: list[str] = []

    def contexts() -> Any:
        return _Entered(entered, "forward"), _Entered(entered, "recomputation")

    wrap = partial(api.checkpoint, use_reentrant=False)
    p.gradient(wrap(context_fn=contexts)(torch.sin)(x), x)
    p.equal(entered, ["forward", "recomputation"], "contexts entered")
    for early_stop, calls in ((True, 1), (False, 2)):
        tail = p.Counted(torch.neg)
        p.gradient(wrap(early_stop=early_stop)(lambda x, f=tail: f(x.sin()))(x), x)
        p.equal(tail.calls, calls, f"executions of what nothing needs, early_stop={early_stop}")
    for preserve in p.BOTH:
        out = wrap(preserve_rng_state=preserve)(_through_mask)(x)
        state = torch.get_rng_state()
        p.gradient(out, x)
        same = torch.equal(state, torch.get_rng_state())
        p.equal(same, preserve, f"RNG state unmoved, preserve_rng_state={preserve}")
    other = p.Changing(lambda x: x.sin().cos(), lambda x: x.double().sin().cos())
    p.gradient(wrap(determinism_check="none")(other)(x), x)
    other = p.Changing(lambda x: x.sin().cos(), lambda x: x.double().sin().cos())
    with p.raises(api.CheckpointError):
        p.gradient(wrap()(other)(x), x)
    with p.raises(ValueError, "determinism_check should be one of"):
        wrap(determinism_check="all")(torch.sin)(x)
    with p.raises(ValueError, "debug=True is incompatible with non-default context_fn"):
        wrap(debug=True, context_fn=contexts)(torch.sin)(x)
    with p.raises(ValueError, "respect_saved_tensors_hooks"):
        api.checkpoint(use_reentrant=True, respect_saved_tensors_hooks=True)(torch.sin)(x)


class _Entered:
    """A context that notes when it is entered."""

    def __init__(self, entered: list[str], name: str) -> None:
        self._entered, self._name = entered, name

    def __enter__(self) -> None:
        self._entered.append(self._name)

    def __exit__(self, *_: Any) -> None:
        pass

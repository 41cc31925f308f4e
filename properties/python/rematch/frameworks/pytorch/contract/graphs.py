"""Backwards: within a segment, several, partial ones; early stop, and what is kept alive."""

from __future__ import annotations

import weakref
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch.contract import promise as p

promises: list[p.Promise] = []


@p.promise(promises)
def early_stop() -> None:
    """Non-reentrant checkpoint stops the recomputation as soon as all needed tensors are computed.
    The option turns that off, and set_checkpoint_early_stop() overrides the option."""
    x = p.leaf()
    for scope, option, stops in (
        (None, None, True),
        (None, True, True),
        (None, False, False),
        (True, None, True),
        (False, None, False),
        (False, True, False),
        (True, False, True),
    ):
        options = {} if option is None else {"early_stop": option}
        middle, tail = p.Counted(torch.cos), p.Counted(torch.neg)

        def run(options: Any = options, middle: Any = middle, tail: Any = tail) -> Tensor:
            function = lambda x: tail(middle(x.sin()))  # noqa: E731
            return api.checkpoint(function, x, use_reentrant=False, **options)

        if scope is None:
            out = run()
        else:
            with api.set_checkpoint_early_stop(scope):
                out = run()
        # The scope need not be active in the backward.
        p.equal(p.gradient(out, x), p.gradient(-x.sin().cos(), x), "gradient")
        p.equal(middle.calls, 2, "executions of what is needed")
        p.equal(tail.calls, 1 if stops else 2, f"executions of the rest, {option} within {scope}")


@p.promise(promises)
def early_stop_scope() -> None:
    """set_checkpoint_early_stop() ends with its scope, even by an error, and scopes nest."""
    x = p.leaf()

    def stops() -> bool:
        tail = p.Counted(torch.neg)
        p.gradient(api.checkpoint(lambda x: tail(x.sin()), x, use_reentrant=False), x)
        return tail.calls == 1

    with p.raises(KeyError), api.set_checkpoint_early_stop(False):
        with api.set_checkpoint_early_stop(True):
            p.equal(stops(), True, "early stop in the inner scope")
        p.equal(stops(), False, "early stop in the outer scope")
        raise KeyError
    p.equal(stops(), True, "early stop after the scopes")
    with api.set_checkpoint_early_stop(True):
        out = api.checkpoint(
            tail := p.Counted(lambda x: -x.sin()), x, use_reentrant=False, early_stop=False
        )
    with api.set_checkpoint_early_stop(False):
        p.gradient(out, x)
    p.equal(tail.calls, 2, "executions")


@p.promise(promises)
def backward_within() -> None:
    """Backward is supported within a checkpointed function, with the graph retained or not, and
    with or without early stop."""
    x = p.leaf()

    def retained(x: Tensor) -> Any:
        y = x.sin()
        z = y.cos()
        return (*torch.autograd.grad(z.sum(), x, retain_graph=True), z)

    def released(x: Tensor) -> Any:
        y = x.sin()
        z = y.cos()
        (slope,) = torch.autograd.grad(z.sum(), x)
        return slope, x.cos() * slope

    for function in (retained, released):
        for stop in p.BOTH:
            run = p.Counted(function)
            slope, out = api.checkpoint(run, x, use_reentrant=False, early_stop=stop)
            wanted = function(x)
            p.equal(slope, wanted[0], "gradient within")
            p.equal(out.detach(), wanted[1].detach(), "output")
            p.equal(p.gradient(out, x), p.gradient(wanted[1], x), "gradient")
            p.equal(run.calls, 3, "executions")


@p.promise(promises)
def several_backwards() -> None:
    """Recomputed tensors are for one backward: the next one recomputes again, also if the graph is
    retained."""
    for stop in p.BOTH:
        x, made = p.leaf(), []

        def function(x: Tensor, made: list[Any] = made) -> Tensor:
            y = x.sin()
            made.append(weakref.ref(y))
            return y.cos().exp()

        out = api.checkpoint(function, x, use_reentrant=False, early_stop=stop)
        p.equal(len(made), 1, "executions")
        wanted = p.gradient(x.sin().cos().exp(), x)
        for backwards in (1, 2, 3):
            p.equal(p.gradient(out, x, retain_graph=backwards < 3), wanted, "gradient")
            p.equal(len(made), 1 + backwards, "executions")
            p.expect(
                not any(ref() is not None for ref in made), "a recomputed tensor is kept alive"
            )
        with p.raises(RuntimeError, "Trying to backward through the graph a second time"):
            p.gradient(out, x)


def _one_backward(call: Any, nests: bool) -> tuple[list[Any], dict[Any, list[Any]]]:
    """Three forwards of two segments that share a weight, the second within the first or behind it,
    and one backward of the sum of their losses. The gradients, and the masks of every run of a
    segment, by its name and the number of the forward. call(function, *args) runs a segment. All
    numbers are small integers, so that sums are exact in every order."""
    weight, drawn = p.leaf(2, -1, 3), {}
    inputs = [p.leaf(1, 2, 3), p.leaf(-2, 1, 5), p.leaf(4, -3, 2)]

    def masked(x: Tensor, name: str, forward: int) -> Tensor:
        mask = torch.dropout(torch.ones(8, 3), 0.5, True)
        drawn.setdefault((name, forward), []).append(mask)
        return x * weight * mask

    def first(x: Tensor, forward: int) -> Tensor:
        return masked(x, "first", forward)

    def second(x: Tensor, forward: int) -> Tensor:
        return masked(x, "second", forward)

    def both(x: Tensor, forward: int) -> Tensor:
        return call(second, first(x, forward), forward)

    def run(x: Tensor, forward: int) -> Tensor:
        return call(both, x, forward) if nests else call(second, call(first, x, forward), forward)

    p.seeded(5)
    losses = [(run(x, i) ** 2).sum() for i, x in enumerate(inputs)]
    sum(losses[1:], losses[0]).backward()
    return [leaf.grad for leaf in (weight, *inputs)], drawn


@p.promise(promises)
def several_forwards_under_one_backward() -> None:
    """Several forwards, of one segment, of some that share a weight, of nested ones, may wait for
    one backward. It recomputes each once, an inner one once more with that around it unless early
    stop comes first, draws what its forward drew, and gives the gradients of the plain run."""
    variants = ({"use_reentrant": True}, *({"early_stop": stop} for stop in p.BOTH))
    for options, nests in product(variants, p.BOTH):
        wanted, masks = _one_backward(lambda function, *args: function(*args), nests)
        state = torch.get_rng_state()
        options = {"use_reentrant": False, **options}
        call = lambda *args, options=options: api.checkpoint(*args, **options)  # noqa: E731
        gradients, drawn = _one_backward(call, nests)
        where = f"{options}, {'nested' if nests else 'in a row'}"
        p.equal(torch.get_rng_state(), state, f"random state after the backward, {where}")
        for (name, forward), [mask] in masks.items():
            again = nests and name == "second" and not options.get("early_stop")
            runs, place = drawn[name, forward], f"of {name}, forward {forward}, {where}"
            p.equal(len(runs), 3 if again else 2, f"executions {place}")
            for got in runs:
                p.equal(got, mask, f"mask {place}")
        for at, got in enumerate(gradients):
            p.equal(got, wanted[at], f"gradient {at}, {where}")


@p.promise(promises)
def partial_backwards() -> None:
    """The non-reentrant variant supports backwards through one output, or to one input, at a
    time."""
    x, y = p.leaf(), p.leaf(2, 3, 4)

    def function(x: Tensor, y: Tensor) -> Any:
        return (x * y).sin().cos(), (x + y).exp().sin()

    run = p.Counted(function)
    plain = function(x, y)
    out = api.checkpoint(run, x, y, use_reentrant=False)
    p.equal(
        p.gradient(out[1], y, retain_graph=True),
        p.gradient(plain[1], y, retain_graph=True),
        "gradient",
    )
    p.equal(run.calls, 2, "executions")
    p.equal(p.gradient(out[0], x), p.gradient(plain[0], x), "gradient through the other output")
    p.equal(run.calls, 3, "executions")
    p.equal(p.gradient(out[1], x), p.gradient(plain[1], x), "gradient to the other input")
    out = api.checkpoint(run, x, y, use_reentrant=False)
    other = out[1]
    del out
    p.equal(
        p.gradient(other, x), p.gradient(function(x, y)[1], x), "gradient without the other output"
    )
    run.calls = 4
    first, second = api.checkpoint(run, x, y, use_reentrant=False)
    (first.sum() + second.sum()).backward()
    p.equal(run.calls, 6, "executions with one backward through both")


@p.promise(promises)
def higher_derivatives() -> None:
    """The non-reentrant variant supports all ways of performing the backward."""
    x = p.leaf()
    out = api.checkpoint(lambda x: x.sin() ** 3, x, use_reentrant=False)
    first = p.gradient(out, x, create_graph=True)
    plain = p.gradient(x.sin() ** 3, x, create_graph=True)
    p.equal(first.detach(), plain.detach(), "gradient")
    p.equal(p.gradient(first, x), p.gradient(plain, x), "second derivative")
    out = api.checkpoint(lambda x: x.sin() ** 3, x, use_reentrant=False)
    total = out.sum()
    with torch.no_grad():
        total.backward()
    p.equal(x.grad, plain.detach(), "gradient of a backward under no_grad()")


@p.promise(promises)
def unpacked_once() -> None:
    """A backward that reads ctx.saved_tensors twice is told to do so only once."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, slope: Tensor) -> Tensor:
            for _ in range(reads):
                (x,) = ctx.saved_tensors
            return slope * x.cos()

    x = p.leaf()
    for reads in (1, 2):
        out = api.checkpoint(Twice.apply, x, use_reentrant=False)
        if reads == 1:
            p.equal(p.gradient(out, x), x.cos().detach(), "gradient")
            continue
        with p.raises(api.CheckpointError, "already unpacked once", "only once") as caught:
            p.gradient(out, x)
        p.expect("GraphExecGroup" not in str(caught.error), "a group is blamed, and there is none")


@p.promise(promises)
def unpacked_outside() -> None:
    """What a segment saved can be looked at outside of a backward: it is recomputed each time."""
    x, run = p.leaf(), p.Counted(lambda x: x.sin().cos())
    out = api.checkpoint(run, x, use_reentrant=False)
    for looks in (1, 2):
        p.equal(out.grad_fn._saved_self.detach(), x.sin().detach(), "saved tensor")
        p.equal(run.calls, 1 + looks, "executions")
    p.equal(p.gradient(out, x), p.gradient(x.sin().cos(), x), "gradient")


@p.promise(promises, when=hasattr(api, "GraphExecGroup"))
def one_recomputation_in_a_group() -> None:
    """Backwards under one GraphExecGroup recompute a segment at most once, and must not overlap."""

    def function(x: Tensor, y: Tensor) -> Any:
        return x.sin().exp(), y.cos().exp()

    x, y = p.leaf(), p.leaf(2, 3, 4)
    wanted = p.gradient(function(x, y)[0], x), p.gradient(function(x, y)[1], y)
    run = p.Counted(function)
    out = api.checkpoint(run, x, y, use_reentrant=False)
    with api.GraphExecGroup():
        p.equal(p.gradient(out[0], x, retain_graph=True), wanted[0], "gradient")
        p.equal(p.gradient(out[1], y, retain_graph=True), wanted[1], "gradient")
        p.equal(run.calls, 2, "executions")
        overlap = "Performing two backward calls that overlap", "GraphExecGroup", "only once"
        with p.raises(api.CheckpointError, "already unpacked once", *overlap):
            p.gradient(out[0], x, retain_graph=True)
    with api.GraphExecGroup():
        p.equal(p.gradient(out[0], x, retain_graph=True), wanted[0], "gradient in another group")
    p.equal(run.calls, 3, "executions in another group")
    p.equal(p.gradient(out[0], x, retain_graph=True), wanted[0], "gradient after the groups")
    p.equal(p.gradient(out[0], x), wanted[0], "gradient of another backward")
    p.equal(run.calls, 5, "executions after the groups")
    run = p.Counted(lambda x: x.sin())
    out = api.checkpoint(run, x, use_reentrant=True)
    with api.GraphExecGroup():
        out.sum().backward(retain_graph=True)
        out.sum().backward()
    p.equal(run.calls, 3, "executions of the reentrant variant, for which a group is a no-op")


@p.promise(promises)
def without_recording() -> None:
    """Under no_grad(), function runs once and nothing is kept."""
    for reentrant in p.BOTH:
        x, run = p.leaf(), p.Counted(torch.sin)
        with torch.no_grad():
            out = api.checkpoint(run, x, use_reentrant=reentrant)
        p.equal((run.calls, out.requires_grad), (1, False), "executions, and requires_grad")
        p.equal(out, x.sin().detach(), "output")
    entered: list[Any] = []
    with torch.no_grad():
        options = {"context_fn": lambda: (_Noted(entered), _Noted(entered))}
        out = api.checkpoint(torch.sin, x, use_reentrant=False, **options)
    p.equal((out, entered), (out, []), "contexts entered")
    kept: list[Any] = []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
        api.checkpoint(lambda x: torch.enable_grad()(torch.sin)(x), x, use_reentrant=False)
    p.equal(len(kept), 1, "tensors that hooks saw")


class _Noted:
    def __init__(self, entered: list[Any]) -> None:
        self._entered = entered

    def __enter__(self) -> None:
        self._entered.append(self)

    def __exit__(self, *_: Any) -> None:
        pass


class _Thing:
    """Something that is no tensor, and whose end is seen."""


@p.promise(promises)
def nothing_outlives_its_use() -> None:
    """What function computes is not kept alive, its args are, and all ends with the graph."""
    for reentrant in p.BOTH:
        for backward in p.BOTH:
            thing, x, made = _Thing(), p.leaf().exp(), []

            def function(x: Tensor, thing: Any, made: list[Any] = made) -> Tensor:
                y = x.sin()
                made.append(weakref.ref(y))
                return y.cos()

            refs = [weakref.ref(thing), weakref.ref(x)]
            out = api.checkpoint(function, x, thing, use_reentrant=reentrant)
            p.expect(made[0]() is None, "a result of the function is kept alive")
            del thing, x
            p.expect(refs[0]() is not None, "an argument is gone before the backward")
            if backward:
                out.sum().backward(retain_graph=True)
                p.expect(len(made) == 2 and made[1]() is None, "a recomputed result is kept alive")
            del out, function
            p.expect(all(ref() is None for ref in refs), "an argument outlives the graph")

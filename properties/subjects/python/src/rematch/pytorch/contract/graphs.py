"""Backwards: within a segment, several, partial ones; early stop, and what is kept alive."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.pytorch.contract.promise import (
    BOTH,
    Counted,
    Promise,
    equal,
    expect,
    gradient,
    leaf,
    promise,
    raises,
)

promises: list[Promise] = []


@promise(promises)
def early_stop() -> None:
    """Non-reentrant checkpoint stops the recomputation as soon as all needed tensors are computed.
    The option turns that off, and set_checkpoint_early_stop() overrides the option."""
    x = leaf()
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
        middle, tail = Counted(torch.cos), Counted(torch.neg)

        def run(options: Any = options, middle: Any = middle, tail: Any = tail) -> Tensor:
            function = lambda x: tail(middle(x.sin()))  # noqa: E731
            return api.checkpoint(function, x, use_reentrant=False, **options)

        if scope is None:
            out = run()
        else:
            with api.set_checkpoint_early_stop(scope):
                out = run()
        # The scope need not be active in the backward.
        equal(gradient(out, x), gradient(-x.sin().cos(), x), "gradient")
        equal(middle.calls, 2, "executions of what is needed")
        equal(tail.calls, 1 if stops else 2, f"executions of the rest, {option} within {scope}")


@promise(promises)
def early_stop_scope() -> None:
    """set_checkpoint_early_stop() ends with its scope, even by an error, and scopes nest."""
    x = leaf()

    def stops() -> bool:
        tail = Counted(torch.neg)
        gradient(api.checkpoint(lambda x: tail(x.sin()), x, use_reentrant=False), x)
        return tail.calls == 1

    with raises(KeyError), api.set_checkpoint_early_stop(False):
        with api.set_checkpoint_early_stop(True):
            equal(stops(), True, "early stop in the inner scope")
        equal(stops(), False, "early stop in the outer scope")
        raise KeyError
    equal(stops(), True, "early stop after the scopes")
    with api.set_checkpoint_early_stop(True):
        out = api.checkpoint(
            tail := Counted(lambda x: -x.sin()), x, use_reentrant=False, early_stop=False
        )
    with api.set_checkpoint_early_stop(False):
        gradient(out, x)
    equal(tail.calls, 2, "executions")


@promise(promises)
def backward_within() -> None:
    """Backward is supported within a checkpointed function, with the graph retained or not, and
    with or without early stop."""
    x = leaf()

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
        for stop in BOTH:
            run = Counted(function)
            slope, out = api.checkpoint(run, x, use_reentrant=False, early_stop=stop)
            wanted = function(x)
            equal(slope, wanted[0], "gradient within")
            equal(out.detach(), wanted[1].detach(), "output")
            equal(gradient(out, x), gradient(wanted[1], x), "gradient")
            equal(run.calls, 3, "executions")


@promise(promises)
def several_backwards() -> None:
    """Recomputed tensors are for one backward: the next one recomputes again, also if the graph is
    retained."""
    for stop in BOTH:
        x, made = leaf(), []

        def function(x: Tensor, made: list[Any] = made) -> Tensor:
            y = x.sin()
            made.append(weakref.ref(y))
            return y.cos().exp()

        out = api.checkpoint(function, x, use_reentrant=False, early_stop=stop)
        equal(len(made), 1, "executions")
        wanted = gradient(x.sin().cos().exp(), x)
        for backwards in (1, 2, 3):
            equal(gradient(out, x, retain_graph=backwards < 3), wanted, "gradient")
            equal(len(made), 1 + backwards, "executions")
            expect(not any(ref() is not None for ref in made), "a recomputed tensor is kept alive")
        with raises(RuntimeError, "Trying to backward through the graph a second time"):
            gradient(out, x)


@promise(promises)
def partial_backwards() -> None:
    """The non-reentrant variant supports backwards through one output, or to one input, at a
    time."""
    x, y = leaf(), leaf(2, 3, 4)

    def function(x: Tensor, y: Tensor) -> Any:
        return (x * y).sin().cos(), (x + y).exp().sin()

    run = Counted(function)
    plain = function(x, y)
    out = api.checkpoint(run, x, y, use_reentrant=False)
    equal(
        gradient(out[1], y, retain_graph=True), gradient(plain[1], y, retain_graph=True), "gradient"
    )
    equal(run.calls, 2, "executions")
    equal(gradient(out[0], x), gradient(plain[0], x), "gradient through the other output")
    equal(run.calls, 3, "executions")
    equal(gradient(out[1], x), gradient(plain[1], x), "gradient to the other input")
    out = api.checkpoint(run, x, y, use_reentrant=False)
    other = out[1]
    del out
    equal(gradient(other, x), gradient(function(x, y)[1], x), "gradient without the other output")
    run.calls = 4
    first, second = api.checkpoint(run, x, y, use_reentrant=False)
    (first.sum() + second.sum()).backward()
    equal(run.calls, 6, "executions with one backward through both")


@promise(promises)
def higher_derivatives() -> None:
    """The non-reentrant variant supports all ways of performing the backward."""
    x = leaf()
    out = api.checkpoint(lambda x: x.sin() ** 3, x, use_reentrant=False)
    first = gradient(out, x, create_graph=True)
    plain = gradient(x.sin() ** 3, x, create_graph=True)
    equal(first.detach(), plain.detach(), "gradient")
    equal(gradient(first, x), gradient(plain, x), "second derivative")
    out = api.checkpoint(lambda x: x.sin() ** 3, x, use_reentrant=False)
    total = out.sum()
    with torch.no_grad():
        total.backward()
    equal(x.grad, plain.detach(), "gradient of a backward under no_grad()")


@promise(promises)
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

    x = leaf()
    for reads in (1, 2):
        out = api.checkpoint(Twice.apply, x, use_reentrant=False)
        if reads == 1:
            equal(gradient(out, x), x.cos().detach(), "gradient")
            continue
        with raises(api.CheckpointError, "already unpacked once", "only once") as caught:
            gradient(out, x)
        expect("GraphExecGroup" not in str(caught.error), "a group is blamed, and there is none")


@promise(promises)
def unpacked_outside() -> None:
    """What a segment saved can be looked at outside of a backward: it is recomputed each time."""
    x, run = leaf(), Counted(lambda x: x.sin().cos())
    out = api.checkpoint(run, x, use_reentrant=False)
    for looks in (1, 2):
        equal(out.grad_fn._saved_self.detach(), x.sin().detach(), "saved tensor")
        equal(run.calls, 1 + looks, "executions")
    equal(gradient(out, x), gradient(x.sin().cos(), x), "gradient")


@promise(promises, when=hasattr(api, "GraphExecGroup"))
def one_recomputation_in_a_group() -> None:
    """Backwards under one GraphExecGroup recompute a segment at most once, and must not overlap."""

    def function(x: Tensor, y: Tensor) -> Any:
        return x.sin().exp(), y.cos().exp()

    x, y = leaf(), leaf(2, 3, 4)
    wanted = gradient(function(x, y)[0], x), gradient(function(x, y)[1], y)
    run = Counted(function)
    out = api.checkpoint(run, x, y, use_reentrant=False)
    with api.GraphExecGroup():
        equal(gradient(out[0], x, retain_graph=True), wanted[0], "gradient")
        equal(gradient(out[1], y, retain_graph=True), wanted[1], "gradient")
        equal(run.calls, 2, "executions")
        overlap = "Performing two backward calls that overlap", "GraphExecGroup", "only once"
        with raises(api.CheckpointError, "already unpacked once", *overlap):
            gradient(out[0], x, retain_graph=True)
    with api.GraphExecGroup():
        equal(gradient(out[0], x, retain_graph=True), wanted[0], "gradient in another group")
    equal(run.calls, 3, "executions in another group")
    equal(gradient(out[0], x, retain_graph=True), wanted[0], "gradient after the groups")
    equal(gradient(out[0], x), wanted[0], "gradient of another backward")
    equal(run.calls, 5, "executions after the groups")
    run = Counted(lambda x: x.sin())
    out = api.checkpoint(run, x, use_reentrant=True)
    with api.GraphExecGroup():
        out.sum().backward(retain_graph=True)
        out.sum().backward()
    equal(run.calls, 3, "executions of the reentrant variant, for which a group is a no-op")


@promise(promises)
def without_recording() -> None:
    """Under no_grad(), function runs once and nothing is kept."""
    for reentrant in BOTH:
        x, run = leaf(), Counted(torch.sin)
        with torch.no_grad():
            out = api.checkpoint(run, x, use_reentrant=reentrant)
        equal((run.calls, out.requires_grad), (1, False), "executions, and requires_grad")
        equal(out, x.sin().detach(), "output")
    entered: list[Any] = []
    with torch.no_grad():
        options = {"context_fn": lambda: (_Noted(entered), _Noted(entered))}
        out = api.checkpoint(torch.sin, x, use_reentrant=False, **options)
    equal((out, entered), (out, []), "contexts entered")
    kept: list[Any] = []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
        api.checkpoint(lambda x: torch.enable_grad()(torch.sin)(x), x, use_reentrant=False)
    equal(len(kept), 1, "tensors that hooks saw")


class _Noted:
    def __init__(self, entered: list[Any]) -> None:
        self._entered = entered

    def __enter__(self) -> None:
        self._entered.append(self)

    def __exit__(self, *_: Any) -> None:
        pass


class _Thing:
    """Something that is no tensor, and whose end is seen."""


@promise(promises)
def nothing_outlives_its_use() -> None:
    """What function computes is not kept alive, its args are, and all ends with the graph."""
    for reentrant in BOTH:
        for backward in BOTH:
            thing, x, made = _Thing(), leaf().exp(), []

            def function(x: Tensor, thing: Any, made: list[Any] = made) -> Tensor:
                y = x.sin()
                made.append(weakref.ref(y))
                return y.cos()

            refs = [weakref.ref(thing), weakref.ref(x)]
            out = api.checkpoint(function, x, thing, use_reentrant=reentrant)
            expect(made[0]() is None, "a result of the function is kept alive")
            del thing, x
            expect(refs[0]() is not None, "an argument is gone before the backward")
            if backward:
                out.sum().backward(retain_graph=True)
                expect(len(made) == 2 and made[1]() is None, "a recomputed result is kept alive")
            del out, function
            expect(all(ref() is None for ref in refs), "an argument outlives the graph")

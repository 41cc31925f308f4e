"""Recomputations that differ from their forward: what is noticed, and what the error says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.pytorch.contract.promise import (
    BOTH,
    Changing,
    Counted,
    Promise,
    equal,
    expect,
    gradient,
    leaf,
    promise,
    raises,
    said,
    seeded,
)

promises: list[Promise] = []
_METADATA = "have different metadata than during the forward pass"
_NUMBER = "A different number of tensors was saved"


def _run(forward: Any, recomputed: Any, x: Tensor, **options: Any) -> Tensor:
    return api.checkpoint(Changing(forward, recomputed), x, use_reentrant=False, **options)


def _through(change: Any) -> Any:
    """Saves its input, what `change` makes of that, and the input once more."""
    return lambda x: x.sin().sum() + change(x).cos().sum() + (x * 1).exp().sin().sum()


def _of(t: Tensor) -> str:
    return str({"shape": t.shape, "dtype": t.dtype, "device": t.device})


@promise(promises)
def kind_of_error() -> None:
    """Errors of checkpoint() about a recomputation are CheckpointErrors, which are
    RuntimeErrors."""
    expect(issubclass(api.CheckpointError, RuntimeError), "CheckpointError is no RuntimeError")
    with raises(api.CheckpointError, _METADATA):
        gradient(_run(torch.sin, lambda x: x.double().sin(), x := leaf()), x)


@promise(promises)
def metadata() -> None:
    """The default determinism check compares the shape, dtype and device of every recomputed tensor
    with those of the saved one; the error names both of each that differs, by its position."""
    x = leaf()
    for change, options in (
        (lambda t: t.double(), {}),
        (lambda t: t[:2], {"determinism_check": "default"}),
        (lambda t: t[None], {"early_stop": False}),
    ):
        out = _run(_through(lambda t: t * 2), _through(lambda t, c=change: c(t * 2)), x, **options)
        # sin saves x, cos its operand.
        wanted = _of(x), _of(change(x))
        with raises(api.CheckpointError, _METADATA, "position 1", *wanted) as caught:
            gradient(out, x)
        text = str(caught.error)
        equal(text.count("tensor at position"), 1, "number of tensors that differ")
        said(text, "saved metadata: " + wanted[0], "recomputed metadata: " + wanted[1])
        said(text, "debug=True", "set_checkpoint_debug_enabled(True)")
    equal(
        gradient(_run(_through(torch.neg), _through(torch.neg), x), x),
        gradient(_through(torch.neg)(x), x),
        "gradient where none differs",
    )


@promise(promises)
def metadata_of_several() -> None:
    """The error of the determinism check lists every tensor that differs."""
    x = leaf()
    out = _run(lambda x: x.sin().cos().tanh(), lambda x: x.double().sin().cos().tanh(), x)
    with raises(api.CheckpointError, "position 0", "position 1", "position 2") as caught:
        gradient(out, x)
    equal(str(caught.error).count("tensor at position"), 3, "number of tensors that differ")


@promise(promises)
def device_metadata() -> None:
    """The determinism check notices another device."""
    x = leaf()
    out = _run(lambda x: (x * 2).sin(), lambda x: (x * 2).to("meta").sin(), x)
    with raises(api.CheckpointError, _METADATA, "type='cpu'", "type='meta'"):
        gradient(out, x)


@promise(promises)
def no_check() -> None:
    """determinism_check="none" turns the check off."""
    x = leaf()
    for early_stop in BOTH:
        out = _run(
            lambda x: (x + 1) * leaf(1, 2, 3, grad=False),
            lambda x: (x + 1) * leaf(4, 5, 6, grad=False)[None],
            x,
            determinism_check="none",
            early_stop=early_stop,
        )
        got = gradient(out, x)
        equal(got.flatten(), torch.tensor([4.0, 5.0, 6.0]), "gradient from the recomputed tensors")


@promise(promises)
def fewer_tensors() -> None:
    """A recomputation that saves fewer tensors than the forward raises a CheckpointError with both
    numbers."""
    x = leaf()
    for early_stop in BOTH:
        out = _run(lambda x: x.sin().cos().exp(), torch.sin, x, early_stop=early_stop)
        words = (_NUMBER, "during forward: 3", "during recomputation: 1", "debug=True")
        with raises(api.CheckpointError, *words):
            gradient(out, x)
    out = _run(lambda x: x.sin().cos(), lambda x: x + 1, x)
    with raises(api.CheckpointError, _NUMBER, "during forward: 2", "during recomputation: 0"):
        gradient(out, x)


@promise(promises)
def more_tensors() -> None:
    """A recomputation that saves more tensors than the forward raises a CheckpointError, unless
    early stop ends it before."""
    x = leaf()
    out = _run(torch.sin, lambda x: x.sin().cos(), x, early_stop=False)
    words = "trying to save more tensors during recomputation than during the original forward"
    with raises(api.CheckpointError, words, "debug=True"):
        gradient(out, x)
    equal(gradient(_run(torch.sin, lambda x: x.sin().cos(), x), x), x.cos(), "gradient")


@promise(promises)
def reentrant_has_no_check() -> None:
    """If use_reentrant=True, the determinism check is always disabled, and early_stop ignored."""
    x, tail = leaf(), Counted(lambda x: x + 1)
    other = Changing(lambda x: x.sin().cos(), lambda x: tail((x[None] * 2)[0]))
    out = api.checkpoint(other, x, use_reentrant=True, determinism_check="default", early_stop=True)
    out.sum().backward()
    equal(x.grad, torch.full((3,), 2.0), "gradient")
    equal(tail.calls, 1, "executions of what nothing needs")


@promise(promises)
def debug_changes_nothing() -> None:
    """debug=True changes error messages only."""
    x = leaf()

    def function(x: Tensor) -> Tensor:
        return torch.dropout(x.sin(), 0.5, True) * x

    def run(**options: Any) -> Tensor:
        seeded(5)
        return gradient(api.checkpoint(function, x, use_reentrant=False, **options), x)

    wanted = run()
    equal(run(debug=True), wanted, "gradient with debug=True")
    with api.set_checkpoint_debug_enabled(True):
        equal(run(), wanted, "gradient within set_checkpoint_debug_enabled(True)")


@promise(promises)
def debug_several_backwards() -> None:
    """debug=True works with several backwards."""
    x = leaf()
    out = api.checkpoint(torch.sin, x, use_reentrant=False, debug=True)
    for backwards in (1, 2):
        equal(gradient(out, x, retain_graph=backwards < 2), x.cos().detach(), "gradient")


@promise(promises)
def debug_shows_operators() -> None:
    """With debug=True, the error also has the operators that ran in the forward and in the
    recomputation, each with its stack trace."""
    x = leaf()

    def in_forward(x: Tensor) -> Tensor:
        return x.sin().exp().cos()

    def in_recomputation(x: Tensor) -> Tensor:
        return x.tanh().erf()

    out = _run(in_forward, in_recomputation, x, debug=True)
    with raises(api.CheckpointError, "debug=True") as caught:
        gradient(out, x)
    parts = str(caught.error).split("+----")
    expect(len(parts) == 5, f"four parts expected, got {len(parts) - 1}")
    of_forward, of_recomputation, lists = parts[1], parts[2], parts[3]
    for i, op in enumerate(("sin", "exp", "cos")):
        said(of_forward, f"aten.{op}", f"({i + 1} of 3 in original)", "in_forward")
    expect("tanh" not in of_forward, "an operator of the recomputation among those of the forward")
    said(of_recomputation, "aten.tanh", "(1 of ", "in recompute)", "in_recomputation", "aten.erf")
    expect("aten.exp" not in of_recomputation, "an operator of the forward in the recomputation")
    shown = [line for line in of_forward.splitlines() if "in_forward" in line]
    expect(all(__file__ in line for line in shown), f"{__file__} expected in {shown}")
    expect("__torch_dispatch__" not in of_forward, "frames of PyTorch's own logging are shown")
    said(lists, "during the original forward:", "aten.sin", "aten.exp", "aten.cos",
         "during recomputation:", "aten.tanh", "aten.erf")  # fmt: skip
    cause = caught.error.__cause__
    equal(type(cause), api.CheckpointError, "cause of the error")
    said(str(cause), _NUMBER, "during forward: 3")


@promise(promises)
def debug_scope() -> None:
    """set_checkpoint_debug_enabled() overrides the debug option of checkpoints that run their
    forward within; None defers to it. It ends with its scope, even by an error."""
    x = leaf()

    def shown(scopes: list[bool | None], **options: Any) -> bool:
        def run(scopes: list[bool | None]) -> Tensor:
            if not scopes:
                return _run(lambda x: x.sin().cos(), torch.sin, x, **options)
            with api.set_checkpoint_debug_enabled(scopes[0]):
                return run(scopes[1:])

        with raises(api.CheckpointError) as caught:
            gradient(run(scopes), x)
        return "Operations executed during the original forward" in str(caught.error)

    for scopes, options, wanted in (
        ([], {}, False),
        ([True], {}, True),
        ([False], {"debug": True}, False),
        ([None], {"debug": True}, True),
        ([None], {}, False),
        ([True, None], {}, False),
        ([False, True], {}, True),
    ):
        equal(shown(scopes, **options), wanted, f"operators in the error, {scopes}, {options}")
    with raises(KeyError), api.set_checkpoint_debug_enabled(True):
        with api.set_checkpoint_debug_enabled(False):
            pass
        equal(shown([]), True, "operators in the error after an inner scope")
        raise KeyError
    equal(shown([]), False, "operators in the error after the scope")


@promise(promises)
def failing_recomputation() -> None:
    """An error in the recomputation comes out of the backward as it is. The random state is as it
    was, and another backward recomputes again."""
    for reentrant in BOTH:
        x, error = leaf(), KeyError("its own")
        fails = [False, True, False]

        def function(x: Tensor, fails: list[bool] = fails, error: KeyError = error) -> Tensor:
            mask = torch.rand(3)
            if fails.pop(0):
                raise error
            return (x * mask).sin()

        seeded(3)
        out = api.checkpoint(function, x, use_reentrant=reentrant)
        state = torch.get_rng_state()
        with raises(KeyError) as caught:
            out.sum().backward(retain_graph=True)
        expect(caught.error is error, "another error than that of the function")
        expect(torch.equal(state, torch.get_rng_state()), "the random state is another one")
        equal(x.grad, None, "gradient")
        out.sum().backward()
        seeded(3)
        equal(x.grad, gradient((x * torch.rand(3)).sin(), x), "gradient of the next backward")

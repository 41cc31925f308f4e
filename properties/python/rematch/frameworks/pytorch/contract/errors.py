"""Recomputations that differ from their forward: what is noticed, and what the error says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch.contract import promise as p

promises: list[p.Promise] = []
_METADATA = "have different metadata than during the forward pass"
_NUMBER = "A different number of tensors was saved"


def _run(forward: Any, recomputed: Any, x: Tensor, **options: Any) -> Tensor:
    return api.checkpoint(p.Changing(forward, recomputed), x, use_reentrant=False, **options)


def _through(change: Any) -> Any:
    """Saves its input, what `change` makes of that, and the input once more."""
    return lambda x: x.sin().sum() + change(x).cos().sum() + (x * 1).exp().sin().sum()


def _of(t: Tensor) -> str:
    return str({"shape": t.shape, "dtype": t.dtype, "device": t.device})


@p.promise(promises)
def kind_of_error() -> None:
    """Errors of checkpoint() about a recomputation are CheckpointErrors, which are
    RuntimeErrors."""
    p.expect(issubclass(api.CheckpointError, RuntimeError), "CheckpointError is no RuntimeError")
    with p.raises(api.CheckpointError, _METADATA):
        p.gradient(_run(torch.sin, lambda x: x.double().sin(), x := p.leaf()), x)


@p.promise(promises)
def metadata() -> None:
    """The default determinism check compares the shape, dtype and device of every recomputed tensor
    with those of the saved one; the error names both of each that differs, by its position."""
    x = p.leaf()
    for change, options in (
        (lambda t: t.double(), {}),
        (lambda t: t[:2], {"determinism_check": "default"}),
        (lambda t: t[None], {"early_stop": False}),
    ):
        out = _run(_through(lambda t: t * 2), _through(lambda t, c=change: c(t * 2)), x, **options)
        # sin saves x, cos its operand.
        wanted = _of(x), _of(change(x))
        with p.raises(api.CheckpointError, _METADATA, "position 1", *wanted) as caught:
            p.gradient(out, x)
        text = str(caught.error)
        p.equal(text.count("tensor at position"), 1, "number of tensors that differ")
        p.said(text, "saved metadata: " + wanted[0], "recomputed metadata: " + wanted[1])
        p.said(text, "debug=True", "set_checkpoint_debug_enabled(True)")
    p.equal(
        p.gradient(_run(_through(torch.neg), _through(torch.neg), x), x),
        p.gradient(_through(torch.neg)(x), x),
        "gradient where none differs",
    )


@p.promise(promises)
def metadata_of_several() -> None:
    """The error of the determinism check lists every tensor that differs."""
    x = p.leaf()
    out = _run(lambda x: x.sin().cos().tanh(), lambda x: x.double().sin().cos().tanh(), x)
    with p.raises(api.CheckpointError, "position 0", "position 1", "position 2") as caught:
        p.gradient(out, x)
    p.equal(str(caught.error).count("tensor at position"), 3, "number of tensors that differ")


@p.promise(promises)
def device_metadata() -> None:
    """The determinism check notices another device."""
    x = p.leaf()
    out = _run(lambda x: (x * 2).sin(), lambda x: (x * 2).to("meta").sin(), x)
    with p.raises(api.CheckpointError, _METADATA, "type='cpu'", "type='meta'"):
        p.gradient(out, x)


@p.promise(promises)
def no_check() -> None:
    """determinism_check="none" turns the check off."""
    x = p.leaf()
    for early_stop in p.BOTH:
        out = _run(
            lambda x: (x + 1) * p.leaf(1, 2, 3, grad=False),
            lambda x: (x + 1) * p.leaf(4, 5, 6, grad=False)[None],
            x,
            determinism_check="none",
            early_stop=early_stop,
        )
        got = p.gradient(out, x)
        p.equal(
            got.flatten(), torch.tensor([4.0, 5.0, 6.0]), "gradient from the recomputed tensors"
        )


@p.promise(promises)
def fewer_tensors() -> None:
    """A recomputation that saves fewer tensors than the forward raises a CheckpointError with both
    numbers."""
    x = p.leaf()
    for early_stop in p.BOTH:
        out = _run(lambda x: x.sin().cos().exp(), torch.sin, x, early_stop=early_stop)
        words = (_NUMBER, "during forward: 3", "during recomputation: 1", "debug=True")
        with p.raises(api.CheckpointError, *words):
            p.gradient(out, x)
    out = _run(lambda x: x.sin().cos(), lambda x: x + 1, x)
    with p.raises(api.CheckpointError, _NUMBER, "during forward: 2", "during recomputation: 0"):
        p.gradient(out, x)


@p.promise(promises)
def more_tensors() -> None:
    """A recomputation that saves more tensors than the forward raises a CheckpointError, unless
    early stop ends it before."""
    x = p.leaf()
    out = _run(torch.sin, lambda x: x.sin().cos(), x, early_stop=False)
    words = "trying to save more tensors during recomputation than during the original forward"
    with p.raises(api.CheckpointError, words, "debug=True"):
        p.gradient(out, x)
    p.equal(p.gradient(_run(torch.sin, lambda x: x.sin().cos(), x), x), x.cos(), "gradient")


@p.promise(promises)
def reentrant_has_no_check() -> None:
    """If use_reentrant=True, the determinism check is always disabled, and early_stop ignored."""
    x, tail = p.leaf(), p.Counted(lambda x: x + 1)
    other = p.Changing(lambda x: x.sin().cos(), lambda x: tail((x[None] * 2)[0]))
    out = api.checkpoint(other, x, use_reentrant=True, determinism_check="default", early_stop=True)
    out.sum().backward()
    p.equal(x.grad, torch.full((3,), 2.0), "gradient")
    p.equal(tail.calls, 1, "executions of what nothing needs")


@p.promise(promises)
def debug_changes_nothing() -> None:
    """debug=True changes error messages only."""
    x = p.leaf()

    def function(x: Tensor) -> Tensor:
        return torch.dropout(x.sin(), 0.5, True) * x

    def run(**options: Any) -> Tensor:
        p.seeded(5)
        return p.gradient(api.checkpoint(function, x, use_reentrant=False, **options), x)

    wanted = run()
    p.equal(run(debug=True), wanted, "gradient with debug=True")
    with api.set_checkpoint_debug_enabled(True):
        p.equal(run(), wanted, "gradient within set_checkpoint_debug_enabled(True)")


@p.promise(promises)
def debug_several_backwards() -> None:
    """debug=True works with several backwards."""
    x = p.leaf()
    out = api.checkpoint(torch.sin, x, use_reentrant=False, debug=True)
    for backwards in (1, 2):
        p.equal(p.gradient(out, x, retain_graph=backwards < 2), x.cos().detach(), "gradient")


@p.promise(promises)
def debug_shows_operators() -> None:
    """With debug=True, the error also has the operators that ran in the forward and in the
    recomputation, each with its stack trace."""
    x = p.leaf()

    def in_forward(x: Tensor) -> Tensor:
        return x.sin().exp().cos()

    def in_recomputation(x: Tensor) -> Tensor:
        return x.tanh().erf()

    out = _run(in_forward, in_recomputation, x, debug=True)
    with p.raises(api.CheckpointError, "debug=True") as caught:
        p.gradient(out, x)
    parts = str(caught.error).split("+----")
    p.expect(len(parts) == 5, f"four parts expected, got {len(parts) - 1}")
    of_forward, of_recomputation, lists = parts[1], parts[2], parts[3]
    for i, op in enumerate(("sin", "exp", "cos")):
        p.said(of_forward, f"aten.{op}", f"({i + 1} of 3 in original)", "in_forward")
    p.expect(
        "tanh" not in of_forward, "an operator of the recomputation among those of the forward"
    )
    p.said(of_recomputation, "aten.tanh", "(1 of ", "in recompute)", "in_recomputation", "aten.erf")
    p.expect("aten.exp" not in of_recomputation, "an operator of the forward in the recomputation")
    shown = [line for line in of_forward.splitlines() if "in_forward" in line]
    p.expect(all(__file__ in line for line in shown), f"{__file__} expected in {shown}")
    p.expect("__torch_dispatch__" not in of_forward, "frames of PyTorch's own logging are shown")
    p.said(lists, "during the original forward:", "aten.sin", "aten.exp", "aten.cos",
         "during recomputation:", "aten.tanh", "aten.erf")  # fmt: skip
    cause = caught.error.__cause__
    p.equal(type(cause), api.CheckpointError, "cause of the error")
    p.said(str(cause), _NUMBER, "during forward: 3")


@p.promise(promises)
def debug_scope() -> None:
    """set_checkpoint_debug_enabled() overrides the debug option of checkpoints that run their
    forward within; None defers to it. It ends with its scope, even by an error."""
    x = p.leaf()

    def shown(scopes: list[bool | None], **options: Any) -> bool:
        def run(scopes: list[bool | None]) -> Tensor:
            if not scopes:
                return _run(lambda x: x.sin().cos(), torch.sin, x, **options)
            with api.set_checkpoint_debug_enabled(scopes[0]):
                return run(scopes[1:])

        with p.raises(api.CheckpointError) as caught:
            p.gradient(run(scopes), x)
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
        p.equal(shown(scopes, **options), wanted, f"operators in the error, {scopes}, {options}")
    with p.raises(KeyError), api.set_checkpoint_debug_enabled(True):
        with api.set_checkpoint_debug_enabled(False):
            pass
        p.equal(shown([]), True, "operators in the error after an inner scope")
        raise KeyError
    p.equal(shown([]), False, "operators in the error after the scope")


@p.promise(promises)
def failing_recomputation() -> None:
    """An error in the recomputation comes out of the backward as it is. The random state is as it
    was, and another backward recomputes again."""
    for reentrant in p.BOTH:
        x, error = p.leaf(), KeyError("its own")
        fails = [False, True, False]

        def function(x: Tensor, fails: list[bool] = fails, error: KeyError = error) -> Tensor:
            mask = torch.rand(3)
            if fails.pop(0):
                raise error
            return (x * mask).sin()

        p.seeded(3)
        out = api.checkpoint(function, x, use_reentrant=reentrant)
        state = torch.get_rng_state()
        with p.raises(KeyError) as caught:
            out.sum().backward(retain_graph=True)
        p.expect(caught.error is error, "another error than that of the function")
        p.expect(torch.equal(state, torch.get_rng_state()), "the random state is another one")
        p.equal(x.grad, None, "gradient")
        out.sum().backward()
        p.seeded(3)
        p.equal(x.grad, p.gradient((x * torch.rand(3)).sin(), x), "gradient of the next backward")

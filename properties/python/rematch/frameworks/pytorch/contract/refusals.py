"""Wrong use: each is refused by the kind of error, and in the words, that the documentation has."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch.contract import promise as p

promises: list[p.Promise] = []
_ASKED = torch.ops.aten


@p.promise(promises)
def reentrant_options() -> None:
    """context_fn, debug, respect_saved_tensors_hooks and keyword arguments are only supported if
    use_reentrant=False."""
    x, run = p.leaf(), p.Counted(torch.sin)
    only = "is only supported when use_reentrant=False"
    wrong: list[dict[str, Any]] = [
        {"context_fn": lambda: (nullcontext(), nullcontext())},
        {"debug": True},
    ]
    if "respect_saved_tensors_hooks" in p.OPTIONS:
        wrong += [{"respect_saved_tensors_hooks": True}, {"respect_saved_tensors_hooks": False}]
    for options in wrong:
        with p.raises(ValueError, "Passing", "context_fn", "debug", only):
            api.checkpoint(run, x, use_reentrant=True, **options)
    with p.raises(ValueError, "Unexpected keyword arguments: first,second"):
        api.checkpoint(run, x, use_reentrant=True, first=1, second=2)
    p.equal(run.calls, 0, "executions of the function")
    # What are the defaults may be said.
    options = {"context_fn": api.noop_context_fn, "debug": False, "determinism_check": "default"}
    api.checkpoint(run, x, use_reentrant=True, **options).sum().backward()
    p.equal(x.grad, x.cos(), "gradient")


@p.promise(promises)
def determinism_checks() -> None:
    """determinism_check is "default" or "none", the only two supported values."""
    x, run = p.leaf(), p.Counted(torch.sin)
    for wrong in ("metadata", "", None):
        with p.raises(
            ValueError, "determinism_check should be one of", "default", "none", f"got {wrong}"
        ):
            api.checkpoint(run, x, use_reentrant=False, determinism_check=wrong)
    p.equal(run.calls, 0, "executions of the function")
    for right in ("default", "none"):
        out = api.checkpoint(run, x, use_reentrant=False, determinism_check=right)
        p.equal(p.gradient(out, x), x.cos(), "gradient")


@p.promise(promises)
def debug_and_contexts() -> None:
    """debug=True, whether as an option or by set_checkpoint_debug_enabled(), is incompatible with a
    context_fn."""
    x, run = p.leaf(), p.Counted(torch.sin)
    options = {"context_fn": lambda: (nullcontext(), nullcontext()), "use_reentrant": False}
    words = "debug=True is incompatible with non-default context_fn"
    with p.raises(ValueError, words):
        api.checkpoint(run, x, debug=True, **options)
    with api.set_checkpoint_debug_enabled(True), p.raises(ValueError, words):
        api.checkpoint(run, x, **options)
    p.equal(run.calls, 0, "executions of the function")
    with api.set_checkpoint_debug_enabled(False):
        p.equal(p.gradient(api.checkpoint(run, x, debug=True, **options), x), x.cos(), "gradient")
    with api.set_checkpoint_debug_enabled(None):
        p.equal(p.gradient(api.checkpoint(run, x, **options), x), x.cos(), "gradient")
        with p.raises(ValueError, words):
            api.checkpoint(run, x, debug=True, **options)


@p.promise(promises)
def reentrant_backward() -> None:
    """The reentrant variant only supports .backward() without its inputs argument."""
    x = p.leaf()
    words = ("use_reentrant=True", "incompatible with .grad() or passing an `inputs` parameter")
    with p.raises(RuntimeError, *words):
        p.gradient(api.checkpoint(torch.sin, x, use_reentrant=True), x)
    with p.raises(RuntimeError, *words):
        api.checkpoint(torch.sin, x, use_reentrant=True).sum().backward(inputs=[x])
    p.expect(x.grad is None, "a gradient was left behind")
    for reentrant in p.BOTH:
        x.grad = None
        api.checkpoint(torch.sin, x, use_reentrant=reentrant).sum().backward()
        p.equal(x.grad, x.cos(), "gradient")
    x.grad = None
    api.checkpoint(torch.sin, x, use_reentrant=False).sum().backward(inputs=[x])
    p.equal(x.grad, x.cos(), "gradient")


@p.promise(promises)
def reentrant_detached() -> None:
    """The reentrant variant does not support segments that detach their outputs: the backward
    raises an error."""
    x = p.leaf()

    def unrecorded(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x.sin()

    words = "none of output has requires_grad=True"
    for function in (lambda x: x.sin().detach(), unrecorded, lambda x: (x.detach() * 2, 3)):
        out = api.checkpoint(function, x, use_reentrant=True)
        out = out[0] if isinstance(out, tuple) else out
        with p.raises(RuntimeError, words):
            out.sum().backward()
    out, _ = api.checkpoint(lambda x: (x.sin(), x.cos().detach()), x, use_reentrant=True)
    x.grad = None
    out.sum().backward()
    p.equal(x.grad, x.cos(), "gradient where another output is detached")
    out = api.checkpoint(lambda x: x.sin() * x.detach(), x, use_reentrant=False)
    p.equal(p.gradient(out, x), x.cos() * x.detach(), "gradient of the variant that supports it")


@p.promise(promises)
def lists_of_operators() -> None:
    """create_selective_checkpoint_contexts() takes a policy or a list of OpOverloads."""
    make = api.create_selective_checkpoint_contexts
    with p.raises(
        ValueError, "to be an OpOverload but got: aten.mm", "Please update", "aten.mm.default"
    ):
        make([_ASKED.sin.default, _ASKED.mm])
    for wrong in (torch.sin, "aten.sin", None):
        with p.raises(
            ValueError, "to be an OpOverload but got: ", f"of type {type(wrong)}"
        ) as caught:
            make([wrong])
        p.expect(
            "OpOverloadPacket" not in str(caught.error), f"no packet was given: {caught.error}"
        )
    for wrong in (None, (_ASKED.sin.default,), "sin", 3):
        with p.raises(TypeError, "must be either a function or a list of ops"):
            make(wrong)
    for right in ([], [_ASKED.sin.default], lambda *args, **kwargs: False):
        forward, recomputation = make(right)
        p.expect(forward is not recomputation, "one context for both executions")
    higher = torch.ops.higher_order.flex_attention
    make([higher])


@p.promise(promises)
def detach_variable() -> None:
    """detach_variable() detaches the tensors of a tuple, which then require grad as before, and
    leaves the rest alone. Anything but a tuple is refused."""
    x, plain, thing = p.leaf().sin(), p.leaf(grad=False), object()
    out = api.detach_variable((x, thing, plain, 3))
    p.equal([type(v) for v in out], [Tensor, object, Tensor, int], "types of the results")
    p.equal(out[0].detach(), x.detach(), "value")
    p.expect(out[0] is not x and out[0].is_leaf, "a result is not detached")
    p.equal([out[0].requires_grad, out[2].requires_grad], [True, False], "requires_grad")
    p.expect(out[1] is thing, "another object came back")
    p.equal(out[0].data_ptr(), x.data_ptr(), "memory of a result")
    with p.raises(RuntimeError, "Only tuple of tensors is supported"):
        api.detach_variable([x])


@p.promise(promises)
def backward_validity() -> None:
    """check_backward_validity() warns if none of the inputs requires grad."""
    x, plain = p.leaf(), p.leaf(grad=False)
    words = (UserWarning, "None of the inputs have requires_grad=True. Gradients will be None")
    for inputs in ((plain, 3), [], (None, plain)):
        with p.warns(words):
            api.check_backward_validity(inputs)
    for inputs in ((plain, x), [x], (3, x, None)):
        with p.warns():
            api.check_backward_validity(inputs)


@p.promise(promises, when=hasattr(api, "GraphExecGroup"))
def nested_groups() -> None:
    """GraphExecGroup contexts cannot be nested."""
    with api.GraphExecGroup() as group:
        p.expect(isinstance(group, api.GraphExecGroup), f"the context is {group!r}")
        with (
            p.raises(RuntimeError, "GraphExecGroup contexts cannot be nested"),
            api.GraphExecGroup(),
        ):
            pass
    with p.raises(KeyError), api.GraphExecGroup():
        raise KeyError
    with api.GraphExecGroup():
        pass


@p.promise(promises, when=p.RECENT)
def suppressing_contexts() -> None:
    """An error of function passes through the forward context, comes to the caller as it is, and
    must not be suppressed."""
    x, seen = p.leaf(), []

    class Context:
        def __init__(self, suppresses: bool) -> None:
            self._suppresses = suppresses

        def __enter__(self) -> None:
            seen.append("entered")

        def __exit__(self, kind: Any, *_: Any) -> bool:
            seen.append(kind)
            return self._suppresses

    def fails(x: Tensor) -> Tensor:
        x.sin()
        raise error

    for error in (KeyError("its own"), KeyboardInterrupt()):
        for suppresses in p.BOTH:
            seen.clear()
            call = partial(api.checkpoint, fails, x, use_reentrant=False)
            call = partial(call, context_fn=lambda s=suppresses: (Context(s), nullcontext()))
            if suppresses:
                with p.raises(
                    RuntimeError, "the forward context provided by context_fn suppressed"
                ):
                    call()
            else:
                with p.raises(type(error)) as caught:
                    call()
                p.expect(caught.error is error, "another error than that of the function")
            p.equal(seen, ["entered", type(error)], "what the context saw")
        for reentrant in p.BOTH:
            with p.raises(type(error)) as caught:
                api.checkpoint(fails, x, use_reentrant=reentrant)
            p.expect(caught.error is error, "another error than that of the function")

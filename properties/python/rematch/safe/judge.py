"""Judges one target."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from rematch.safe.scenarios import FORWARDS, NON_REENTRANT, OWN, REENTRANT, SCENARIOS, Backend, Variant, compiled_by
from rematch.safe.state import State
from rematch.safe.target import Target
from rematch.safe.trials import Trier
from rematch.safe.verdict import Verdict

VARIANTS = {variant.name: variant for variant in (REENTRANT, NON_REENTRANT)}


def judge(
    target: Callable[..., Any] | None = None,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    make: Callable[[], Callable[..., Any]] | None = None,
    variants: Iterable[str] | None = None,
    context_fn: Callable[[], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    ignore: Iterable[str] = (),
    loss: Callable[[Any], Tensor] | None = None,
    switch: Callable[[Any, bool], None] | None = None,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    seed: int = 0,
    own: bool = False,
    grad: bool = True,
    compile: Backend | None = None,
    progress: bool | None = None,
) -> Verdict:
    """Says whether checkpointing changes what `target` computes, why, and what it saves.

    Everything is left as it was: parameters, gradients, buffers, attributes, random states.

    Args:
        target: a module, or any function: what it closes over is watched like a module. Modes stay as they are.
        args, kwargs: its arguments, of any structure. Tensors that require grad get gradients, or else all floating
            ones.
        make: a function that makes the target, for a target that cannot be put back between runs.
        variants: "reentrant", "non_reentrant", or both if left out.
        context_fn, options: passed to checkpoint(), to verify a fix; context_fn selects the non-reentrant variant.
        ignore: patterns of differences to accept, such as "buffer *running*".
        loss: makes a scalar of what the target returns; by default a weighted sum of all outputs, or a model's `.loss`.
        switch: called with the target and True or False, turns the target's own checkpointing on or off.
        within: makes a context that surrounds each forward and is left before the backward, as a caller's is.
        seed: the seed of the random states that each run begins with.
        own: judges only what the target checkpoints inside.
        grad: False judges forwards alone, under torch.no_grad(), as in generation.
        compile: a backend of torch.compile(), such as "aot_eager", to also try a training step with; it takes seconds.
        progress: prints progress on standard error; by default on a terminal only.

    Raises RuntimeError if the plain run fails, does not repeat itself or cannot be undone, TypeError if the target is
    not a function, and ValueError for an unknown variant.
    """
    chosen = _variants(variants, context_fn, options)
    if make is None and not callable(target):
        raise TypeError(f"judge() expects a module or a function, got {type(target).__name__}")
    if make is None and isinstance(target, torch.jit.ScriptFunction):
        raise TypeError("judge() cannot look into a scripted function: hand over the Python function")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = Target(target, args, kwargs or {}, make, loss, switch, within if grad else _without_grad(within))
        subject.is_model, subject.grad = own, grad
        try:
            if make is None:
                refuse_lazy(subject.state)
            scenarios = [*(SCENARIOS if grad else FORWARDS), *([compiled_by(compile)] if compile else [])]
            shows = sys.stderr.isatty() if progress is None else progress
            return Trier(subject, [OWN] if own else chosen, list(ignore), seed, shows).judge(scenarios)
        finally:
            subject.end()


def _without_grad(within: Callable[[], AbstractContextManager[Any]]) -> Callable[[], AbstractContextManager[Any]]:
    @contextmanager
    def both() -> Iterator[None]:
        with torch.no_grad(), within():
            yield

    return both


def refuse_lazy(state: State) -> None:
    """Raises RuntimeError if a forward would replace classes of modules, which cannot be put back."""
    if any(map(is_lazy, state.tensors().values())):
        raise RuntimeError("the first forward gives parameters their shapes: run one before, or hand over make=")


def _variants(
    variants: Iterable[str] | None, context_fn: Callable[[], Any] | None, options: Mapping[str, Any] | None
) -> list[Variant]:
    if isinstance(variants, str):
        variants = [variants]
    names = list(variants) if variants is not None else (["non_reentrant"] if context_fn is not None else [*VARIANTS])
    if unknown := [name for name in names if name not in VARIANTS]:
        raise ValueError(f"variants: some of {', '.join(VARIANTS)} expected, got {unknown[0]!r}")
    given = dict(options or {})
    if context_fn is not None:
        given["context_fn"] = context_fn
    return [Variant(name, name == "reentrant", options=given) for name in names]

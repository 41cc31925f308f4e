"""Judges one target."""

from __future__ import annotations

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

    `target`: a module, or any function: what it closes over is watched like a module. Modes stay as
    they are. `args`, `kwargs`: its arguments, of any structure; tensors that require grad get
    gradients, or all floating ones where none does. `make`: a function that makes the target, for
    what cannot be put back between runs. `variants`: "reentrant", "non_reentrant"; both where it is
    left out. `context_fn`, `options`: given to checkpoint(), to verify a fix; with context_fn only the
    non-reentrant variant is tried. `ignore`: patterns of differences that are accepted, such as
    "buffer *running*". `loss`: makes a scalar of what the target returns; otherwise a weighted sum of
    all outputs, or the loss that a model returns as `.loss`. `switch`: called with the target and True or
    False turns its own checkpointing on or off. `within`: makes a context that surrounds each forward, and
    is left before the backward, as that of a caller is. `own`: only what the target checkpoints inside is
    judged. `grad`: False asks about forwards alone, under torch.no_grad(), as in generation. `compile`: a backend of torch.compile(), such as "aot_eager", with which a training step is
    tried, too; it takes seconds. `progress`: on standard error; by itself on a terminal.

    Everything is left as it was: parameters, gradients, buffers, attributes, random states.

    Raises RuntimeError where the plain run fails, does not repeat itself or cannot be undone, TypeError for a target
    that is no function, ValueError for an unknown variant.
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
    """Raises RuntimeError where a forward would exchange classes of modules, which cannot be put back."""
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

"""May a module be checkpointed? Runs it plain and under both variants of PyTorch's checkpoint()."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from rematch.safe.report import Finding, compare, report
from rematch.safe.run import Scenario, Target, run

SCENARIOS = (
    Scenario("one training step"),
    Scenario("evaluation mode", train=False),
    Scenario("inputs that require no grad", inputs_require_grad=False),
    Scenario("two backwards over a retained graph", backwards=2),
    Scenario("gradients accumulated over two microbatches", microbatches=2),
    Scenario("autocast to bfloat16", autocast=True),
    Scenario("preserve_rng_state=False", preserve_rng_state=False),
)
VARIANTS = ("reentrant", "non_reentrant")


def findings(target: Target, *example_inputs: Any, variants: Iterable[str] = VARIANTS, seed: int = 0) -> list[Finding]:
    """The first difference of each variant and scenario; empty: the module may be checkpointed.

    `target` is a module, of which copies are run, or a function. `example_inputs` are its
    positional arguments; floating tensors among them get gradients. Random states are as before
    afterwards.

    Two things that PyTorch says of itself are not held against a module: with
    preserve_rng_state=False masks are drawn anew, so that only modules that draw nothing are asked;
    and the reentrant variant needs an input that requires grad, so that it is given one, unless
    there is no floating input.

    Raises RuntimeError when the plain run of the first scenario fails, or is not repeatable.
    """
    wanted = list(variants)
    if unknown := [v for v in wanted if v not in VARIANTS]:
        raise ValueError(f"variants: some of {', '.join(VARIANTS)} expected, got {unknown[0]!r}")
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _findings(target, example_inputs, wanted, seed)
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _findings(target: Target, example: tuple[Any, ...], variants: list[str], seed: int) -> list[Finding]:
    found = []
    leaves = [t for t in tree_flatten(list(example))[0] if isinstance(t, Tensor)]
    floating = any(t.is_floating_point() for t in leaves)
    draws = False
    for scenario in SCENARIOS:
        plain = run(target, example, scenario, None, seed)
        if scenario is SCENARIOS[0]:
            _check_plain(plain, run(target, example, scenario, None, seed), scenario)
            draws = plain.draws
        if plain.error or (draws and not scenario.preserve_rng_state):
            continue
        for variant in variants:
            reentrant = variant == "reentrant"
            if reentrant and floating and not scenario.inputs_require_grad:
                continue
            seen = run(target, example, scenario, reentrant, seed)
            finding = compare(plain, seen, scenario, reentrant)
            if finding is not None:
                found.append(finding)
    return found


def _check_plain(plain: Any, again: Any, scenario: Scenario) -> None:
    if plain.error:
        raise RuntimeError(f"the module fails without checkpointing, too: {plain.error}")
    difference = compare(plain, again, scenario, False)
    if difference is not None:
        raise RuntimeError(
            f"two plain runs from the same seeds differ, so that nothing can be compared: {difference.what}"
        )


def assert_checkpoint_safe(
    target: Target, *example_inputs: Any, variants: Iterable[str] = VARIANTS, seed: int = 0
) -> None:
    """Raises AssertionError with a report when checkpointing changes what a module computes.

    Arguments and errors are those of findings(). A small block takes about a second.
    """
    found = findings(target, *example_inputs, variants=variants, seed=seed)
    if not found:
        return
    name = type(target).__name__ if isinstance(target, torch.nn.Module) else target.__name__
    raise AssertionError(report(name, found))

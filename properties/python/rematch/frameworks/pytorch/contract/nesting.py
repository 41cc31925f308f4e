"""Checkpoints in checkpoints."""

import re
from functools import partial

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *


def level_runs(variants, early_stop=True):
    """Runs of each level of a pure nesting, outermost first; the innermost is a tanh."""
    leaf = Counted(torch.tanh)
    counted = [leaf]
    body = leaf
    for variant in reversed(variants[1:]):

        def outer(x, inner=body, variant=variant):
            return checkpointed(variant, inner, x, early_stop=early_stop)

        body = Counted(outer)
        counted.append(body)
    checkpointed(variants[0], body, variable(0.5), early_stop=early_stop).sum().backward()
    return [c.runs for c in reversed(counted)]


def pure_nesting(depth):
    stopped = level_runs(["non_reentrant"] * depth)
    whole = level_runs(["non_reentrant"] * depth, early_stop=False)
    return {
        "leaf_runs_with_early_stop": stopped[-1],
        "leaf_runs_without": whole[-1],
        "level_runs_with_early_stop": stopped,
        "level_runs_without": whole,
    }


for depth in range(1, 6):
    probe(
        f"N13.depth{depth}",
        f"Nothing but checkpoints in checkpoints, {depth} deep, around a tanh: how often the "
        "innermost function runs, and each level, outermost first.",
    )(partial(pure_nesting, depth))


def siblings(saves_before, saves_after):
    runs = partial(siblings_runs, saves_before, saves_after)
    return {"with_early_stop": runs(True), "without": runs(False)}


def siblings_runs(saves_before, saves_after, early_stop):
    """Runs of an outer function and of two checkpoints in it, one after the other."""
    first, second = Counted(torch.tanh), Counted(torch.tanh)

    def both(x):
        if saves_before:
            x = torch.tanh(x)
        x = checkpoint(second, checkpoint(first, x, early_stop=early_stop), early_stop=early_stop)
        return torch.tanh(x) if saves_after else x

    outer = Counted(both)
    checkpoint(outer, variable(0.5), early_stop=early_stop).sum().backward()
    return [outer.runs, first.runs, second.runs]


for where, words, *saves in (
    ("", "Two checkpoints in a checkpoint: runs of the outer, the first, the second.", False, False),
    ("_after_an_op", "The same, after a tanh in the outer function.", True, False),
    ("_before_an_op", "The same, before a tanh in the outer function.", False, True),
):
    probe(f"N13.siblings{where}", words)(partial(siblings, *saves))


R, N = VARIANTS
MIXED = {
    "reentrant_around_non_reentrant": [R, N],
    "non_reentrant_around_reentrant": [N, R],
    "alternating_from_reentrant": [R, N, R],
    "alternating_from_non_reentrant": [N, R, N],
}
TWICE = {"reentrant_twice_around_non_reentrant": [R, R, N], "non_reentrant_twice_around_reentrant": [N, N, R]}


@probe("N13.mixed", "Nesting of both variants, early stop on: runs of each level, outermost first.")
def mixed():
    return {name: level_runs(variants) for name, variants in (MIXED | TWICE).items()}


@probe("N13.mixed_without_early_stop", "The same with early stop off.")
def mixed_without_early_stop():
    return {name: level_runs(variants, early_stop=False) for name, variants in MIXED.items()}


@probe("N13.belongs_to_the_innermost", "What hooks around a nesting of two see saved.")
def belongs_to_the_innermost():
    with HookCounter() as hooks:
        checkpoint(lambda x: torch.tanh(checkpoint(lambda x: torch.tanh(torch.tanh(x)), x)), variable(0.5))
    return {"surrounding_packs": hooks.packs}


@probe(
    "N13.inputs_belong_to_the_parent",
    "How many tensors the outer of two checkpoints says that its forward saved (a tanh, the "
    "inner's two inputs, a product of two operands), and its recomputation, for which one is "
    "frozen.",
)
def inputs_belong_to_the_parent():
    w = variable(2.0)

    def inner(a, b):
        return torch.tanh(torch.tanh(a) + torch.tanh(b))

    def outer(x):
        return checkpoint(inner, torch.tanh(x), x) * w

    y = checkpoint(outer, variable(0.5))
    w.requires_grad_(False)
    try:
        y.sum().backward()
    except C.CheckpointError as error:
        counts = re.findall(r"(?:forward|recomputation): (\d+)", str(error))
        return {"saved_in_forward": int(counts[0]), "saved_in_recomputation": int(counts[1])}
    return {"saved_in_forward": 0, "saved_in_recomputation": 0}


@probe("N13.recomputation_inside_a_forward", "A function that differentiates another checkpoint's result.")
def recomputation_inside_a_forward():
    def run(call):
        x = variable(0.5, -1.0)
        other = Counted(lambda x: torch.tanh(torch.sigmoid(x)))
        z = variable(2.0, 3.0)
        slope_of = call(other, z)

        def body(x):
            (slope,) = torch.autograd.grad(slope_of.sum(), z, retain_graph=True)
            return torch.tanh(x) * slope.detach()

        body = Counted(body)
        call(body, x).sum().backward()
        return [body.runs, other.runs], [x.grad]

    _, reference = run(directly)
    seen = {}
    for name, call in (("with_early_stop", checkpoint), ("without", without_early_stop)):
        runs, gradients = run(call)
        seen[name] = judged(lambda: gradients, reference)
        seen[f"runs_{name}"] = runs
    return seen


@probe("N13.hooks_around_backward", "Hooks active during backward: do they see what a recomputation saves?", by=in_both)
def hooks_around_backward(call):
    y = call(lambda x: torch.tanh(torch.tanh(x)), variable(0.5)).sum()
    with HookCounter() as hooks:
        y.backward()
    return {"packs": hooks.packs}


@probe("N13.scope_in_a_function", "Early stop switched off inside, for the inner checkpoint only.")
def scope_in_a_function():
    tail = Counted(lambda x: x + 1)
    outer_tail = Counted(lambda x: x + 1)

    def outer(x):
        with C.set_checkpoint_early_stop(False):
            y = checkpoint(lambda x: tail(torch.tanh(x)), torch.tanh(x))
        return outer_tail(torch.tanh(y))

    checkpoint(outer, variable(0.5)).sum().backward()
    return {"inner_tail_runs": tail.runs, "outer_tail_runs": outer_tail.runs}


@probe("N13.scope_around_a_nesting", "Early stop switched off around the forward of three levels.")
def scope_around_a_nesting():
    leaf = Counted(torch.tanh)
    middle = Counted(lambda x: checkpoint(leaf, x))
    outer = Counted(lambda x: checkpoint(middle, x))
    with C.set_checkpoint_early_stop(False):
        y = checkpoint(outer, variable(0.5))
    y.sum().backward()
    return {"level_runs": [outer.runs, middle.runs, leaf.runs]}


@probe("N13.partly_needed", "Of two checkpoints in a checkpoint only the first is walked: runs.")
def partly_needed():
    def run(early_stop):
        first, second = Counted(torch.tanh), Counted(torch.tanh)

        def both(x):
            a = checkpoint(first, x, early_stop=early_stop)
            return a, checkpoint(second, a, early_stop=early_stop)

        outer = Counted(both)
        a, b = checkpoint(outer, variable(0.5), early_stop=early_stop)
        a.sum().backward(retain_graph=True)
        runs = [outer.runs, first.runs, second.runs]
        b.sum().backward()
        return runs, [outer.runs, first.runs, second.runs]

    stopped, whole = run(True), run(False)
    return {
        "after_the_first_with_early_stop": stopped[0],
        "after_both_with_early_stop": stopped[1],
        "after_the_first_without": whole[0],
        "after_both_without": whole[1],
    }


@probe(
    "N13.random", "Dropout in and around a checkpoint in a checkpoint: masks and random state.", by=gradient_and_state
)
def random_state(call):
    x = ramp(4, 8)
    inner = lambda x: torch.tanh(torch.dropout(x, 0.5, True))
    outer = lambda x: torch.dropout(call(inner, torch.dropout(x, 0.5, True)), 0.5, True)
    call(outer, x).sum().backward()
    return x.grad

"""GraphExecGroup: backwards that share a recomputation."""

from contextlib import nullcontext

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.lifetime import two_outputs
from rematch.frameworks.pytorch.contract.probing import *


@probe("N16.shared", "Two backwards over two outputs of a checkpoint, in a group and without.")
def shared():
    def run(scope):
        x = variable(0.5, -1.0)
        body = Counted(lambda x: (torch.tanh(x), torch.sigmoid(x)))
        a, b = checkpoint(body, x)
        with scope:
            a.sum().backward()
            b.sum().backward()
        return body.runs, [x.grad]

    alone, reference = run(nullcontext())
    together, gradients = run(C.GraphExecGroup())
    return {
        "runs_without_a_group": alone,
        "runs_in_a_group": together,
        "verdict_in_a_group": judged(lambda: gradients, reference),
    }


@probe("N16.nested_checkpoints", "The same with a checkpoint in the checkpoint: outer, inner runs.")
def nested_checkpoints():
    def run(scope):
        x = variable(0.5, -1.0)
        inner = Counted(lambda x: (torch.tanh(x), torch.sigmoid(x)))
        outer = Counted(lambda x: checkpoint(inner, torch.tanh(x)))
        a, b = checkpoint(outer, x)
        with scope:
            outcome_ = outcome(lambda: (a.sum().backward(retain_graph=True), b.sum().backward()))
        return [outer.runs, inner.runs], outcome_

    alone, alone_error = run(nullcontext())
    together, together_error = run(C.GraphExecGroup())
    return {
        "runs_without_a_group": alone,
        "error_without_a_group": alone_error,
        "runs_in_a_group": together,
        "error_in_a_group": together_error,
    }


@probe("N16.overlap", "Two backwards in a group that need the same saved tensor.")
def overlap():
    body = Counted(torch.tanh)
    y = checkpoint(body, variable(0.5)).sum()
    with C.GraphExecGroup():
        y.backward(retain_graph=True)
        error = outcome(lambda: y.backward(retain_graph=True))
        runs = body.runs
    return {"second_backward_error": error, "runs": runs, "backward_after_the_group_error": outcome(y.backward)}


@probe("N16.groups_in_groups", "A group inside a group, and a new one after that.")
def groups_in_groups():
    def nested():
        with C.GraphExecGroup(), C.GraphExecGroup():
            pass

    def after():
        with C.GraphExecGroup():
            pass

    return {"nested_error": outcome(nested), "afterwards_error": outcome(after)}


@probe("N16.two_groups", "The same backward in one group, then in another: runs.")
def two_groups():
    body = Counted(torch.tanh)
    y = checkpoint(body, variable(0.5)).sum()
    runs = []
    for _ in range(2):
        with C.GraphExecGroup():
            y.backward(retain_graph=True)
        runs.append(body.runs)
    return {"runs": runs}


@probe("N16.reentrant", "The reentrant variant in a group: runs after each of two backwards.")
def reentrant_in_a_group():
    with C.GraphExecGroup():
        return runs_of_backwards(reentrant, 2)


@probe("N16.same_group_again", "The same group entered twice; what is entered, and errors in it.")
def same_group_again():
    body = Counted(torch.tanh)
    y = checkpoint(body, variable(0.5)).sum()
    scope = C.GraphExecGroup()
    with scope:
        y.backward(retain_graph=True)
    with scope:
        error = outcome(lambda: y.backward(retain_graph=True))
    entered = []

    def fails():
        with C.GraphExecGroup() as given:
            entered.append(isinstance(given, C.GraphExecGroup))
            raise ValueError("the function gave up")

    return {
        "second_time_error": error,
        "runs": body.runs,
        "left_by_an_error": [outcome(fails), outcome(fails)],
        "is_given": entered,
    }


@probe("N16.weights_changed_in_a_group", "A weight changed between two backwards of a group.")
def weights_changed_in_a_group():
    def run(scope):
        x, w = variable(0.5), variable(2.0)
        a, b = checkpoint(lambda x: (torch.tanh(x * w), torch.sigmoid(x * w)), x)
        with scope:
            a.sum().backward(retain_graph=True)
            with torch.no_grad():
                w.mul_(2)
            b.sum().backward()
        return x.grad

    # Stale in a group: the recomputation of the first backward serves the second.
    return {"same_as_without_a_group": same_bits(run(nullcontext()), run(C.GraphExecGroup()))}


@probe("N16.leftovers", "What a group's recomputation recomputed and nobody used, after the group.")
def leftovers():
    a, b, recomputed = two_outputs()
    with C.GraphExecGroup():
        a.sum().backward()
        inside = alive(recomputed)
    return {"alive_in_the_group": inside, "alive_after_the_group": alive(recomputed), "graph_alive": b is not None}

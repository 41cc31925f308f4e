"""Calls of checkpoint() without a function: it makes a decorator."""

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *


def decorated(**options):
    return C.checkpoint(use_reentrant=False, **options)


def tried(make, *args, **kwargs):
    """The verdict over a gradient by `make(wrap)`, called so, where `wrap` checkpoints or not."""

    def gradient(wrap):
        x = variable(0.3, -0.7)
        make(wrap)(x, *args, **kwargs).sum().backward()
        return [x.grad]

    return judged(lambda: gradient(decorated()), gradient(lambda function: function))


@probe("DE.function", "A decorated function with a keyword: name, text, runs, verdict, refusals.")
def function():
    powers = []

    def cubed(x, *, power=1):
        "What it is for."
        powers.append(power)
        return x.sin() ** power + 1

    wrapped = decorated(early_stop=False)(cubed)
    verdict = tried(lambda wrap: wrap(cubed), power=3)
    powers.clear()
    wrapped(variable(0.5), power=2).sum().backward()
    with warned() as warnings_seen:
        y = C.checkpoint()(torch.sin)(variable(0.5))
    reentrant = C.checkpoint(use_reentrant=True)(cubed)
    unknown = lambda: C.checkpoint(use_reentrant=False, a=1, b=2)
    return {
        "name_and_text": [wrapped.__name__, wrapped.__doc__],
        "verdict": verdict,
        "keyword_of_each_run": powers,
        "warnings_without_a_variant": warnings_seen,
        "is_reentrant_without": type(y.grad_fn).__name__ == "CheckpointFunctionBackward",
        "unknown_options_error": said(unknown, "Unexpected keyword arguments: a,b"),
        "reentrant_keyword_error": outcome(lambda: reentrant(variable(0.5), power=1)),
    }


@probe("DE.method", "A decorated method, and something callable that is no method.")
def method():
    runs = []

    def squared(self, x, power=2):
        runs.append(self)
        return (x * self.scale).sin() ** power

    def block(wrap):
        members = {"scale": 3, "run": wrap(squared), "other": wrap(Counted(torch.sin))}
        return type("Block", (), members)

    made = block(decorated())
    one = made()
    one.scale = 5
    one.run(variable(0.5)).sum().backward()
    of_class = lambda wrap: lambda x: (b := block(wrap)).run(b(), x, power=3)
    return {
        "same_self_in_each_run": len(runs) == 2 and all(r is one for r in runs),
        "name": made.run.__name__,
        "verdict": tried(lambda wrap: block(wrap)().run),
        "verdict_through_the_class": tried(of_class),
        "verdict_of_what_is_no_method": tried(lambda wrap: block(wrap)().other),
    }


@probe("DE.options", "Each option, given to the decorator: what it does.")
def options():
    entered = []
    contexts = lambda: (Entered(entered, "forward"), Entered(entered, "recomputation"))
    decorated(context_fn=contexts)(torch.sin)(variable(0.5)).sum().backward()
    tails, kept = [], []
    for choice in (True, False):
        tail = Counted(torch.neg)
        decorated(early_stop=choice)(lambda x: tail(x.sin()))(variable(0.5)).sum().backward()
        tails.append(tail.runs)
        body = lambda x: torch.dropout(x * 2, 0.5, True) * x
        wrap = decorated(preserve_rng_state=choice)
        members = {"run": wrap(lambda self, x: body(x))}
        for wrapped in (wrap(body), type("Block", (), members)().run):
            y = wrapped(variable(0.5, 1.5))
            before = torch.get_rng_state()
            y.sum().backward()
            kept.append(torch.equal(before, torch.get_rng_state()))
    body = lambda: InTurn(torch.sin, lambda x: x.reshape(1, -1).sin())
    checked = lambda **o: outcome(decorated(**o)(body())(variable(0.5, 1)).sum().backward)
    refused = lambda **o: outcome(lambda: C.checkpoint(**o)(torch.sin)(variable(0.5)))
    return {
        "contexts_entered": entered,
        "tail_runs_by_early_stop": tails,
        "random_state_kept_by_preserving_it": kept,
        "mismatch_error": checked(),
        "mismatch_error_unchecked": checked(determinism_check="none"),
        "unknown_check_error": refused(use_reentrant=False, determinism_check="all"),
        "debug_error": refused(use_reentrant=False, debug=True, context_fn=contexts),
        "hooks_error": refused(use_reentrant=True, respect_saved_tensors_hooks=True),
    }

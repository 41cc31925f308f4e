"""What checkpoint() accepts, refuses and ignores."""

from contextlib import nullcontext

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *


def attempt(variant, function=torch.tanh, **options):
    return outcome(lambda: checkpointed(variant, function, variable(0.5), **options))


@probe("RE7.refused", "Options that the reentrant variant refuses, runs then, and defaults.")
def refused():
    body = Counted(torch.tanh)
    contexts = lambda: (nullcontext(), nullcontext())
    more = lambda: checkpointed("reentrant", body, variable(0.5), first=1, second=2)
    seen = {
        "keyword_argument_error": attempt("reentrant", body, k=1),
        "keywords_named": said(more, "Unexpected keyword arguments: first,second"),
        "context_fn_error": attempt("reentrant", body, context_fn=contexts),
        "debug_error": attempt("reentrant", body, debug=True),
    }
    defaults = {"context_fn": C.noop_context_fn, "debug": False, "determinism_check": "default"}
    return seen | {"runs": body.runs, "defaults_error": attempt("reentrant", body, **defaults)}


@probe("RE7.respect_saved_tensors_hooks", "An option that only newer releases have.")
def respect_saved_tensors_hooks():
    return {
        "reentrant_error": attempt("reentrant", respect_saved_tensors_hooks=True),
        "reentrant_off_error": attempt("reentrant", respect_saved_tensors_hooks=False),
        "non_reentrant_error": attempt("non_reentrant", respect_saved_tensors_hooks=True),
    }


@probe("RE7.ignored", "early_stop and determinism_check given to the reentrant variant.")
def ignored():
    tails = {}
    for early_stop in (True, False):
        tail = Counted(lambda x: x + 1)
        x = variable(0.5)
        checkpointed("reentrant", lambda x: tail(torch.tanh(x)), x, early_stop=early_stop).sum().backward()
        tails[early_stop] = tail.runs
    return {
        "runs_after_the_last_saved_with_early_stop": tails[True],
        "runs_after_the_last_saved_without": tails[False],
        "unknown_determinism_check_error": attempt("reentrant", determinism_check="nonsense"),
    }


@probe("RE7.variant_not_chosen", "checkpoint(), checkpoint_sequential() without use_reentrant.")
def variant_not_chosen():
    seen = {}
    for name, options in [
        ("left_out", {}),
        ("none", {"use_reentrant": None}),
        ("reentrant", {"use_reentrant": True}),
        ("non_reentrant", {"use_reentrant": False}),
    ]:
        for call in (
            lambda **o: C.checkpoint(torch.tanh, variable(0.5), **o),
            lambda **o: C.checkpoint_sequential([torch.tanh, lambda x: x], 2, variable(0.5), **o),
        ):
            with warned() as warnings_seen:
                y = call(**options)
            is_reentrant = type(y.grad_fn).__name__ == "CheckpointFunctionBackward"
            seen.setdefault(name, []).append([warnings_seen, is_reentrant])
    return seen


@probe("N7.unknown_check", "determinism_check with what is not known: errors, and runs.")
def unknown_check():
    body = Counted(torch.tanh)
    errors = []
    for wrong in ("nonsense", "", None):
        call = lambda: checkpoint(body, variable(0.5), determinism_check=wrong)
        words = "determinism_check should be one of", "default", "none", f"got {wrong}"
        errors.append([outcome(call), said(call, *words)])
    return {"errors": errors, "runs": body.runs}


@probe("N8.options", "debug beside context_fn, and the scope that overrides it.")
def debug_options():
    contexts = lambda: (nullcontext(), nullcontext())

    def within(scope, **options):
        with C.set_checkpoint_debug_enabled(scope):
            return attempt("non_reentrant", context_fn=contexts, **options)

    return {
        "with_context_fn_error": attempt("non_reentrant", debug=True, context_fn=contexts),
        "scope_on_with_context_fn_error": within(True),
        "scope_off_with_context_fn_error": within(False, debug=True),
        "scope_none_with_context_fn_error": within(None, debug=True),
    }


def noted_contexts():
    noted = []

    def make():
        noted.append("made")
        return Entered(noted, "forward"), Entered(noted, "recomputation")

    return noted, make


@probe("N17.grad_disabled", "checkpoint() with recording off.")
def grad_disabled():
    seen = {}
    for variant in VARIANTS:
        body = Counted(torch.tanh)
        reads = Counted(torch.get_rng_state)
        before, torch.get_rng_state = torch.get_rng_state, reads
        try:
            with torch.no_grad(), HookCounter() as hooks:
                y = checkpointed(variant, body, variable(0.5))
        finally:
            torch.get_rng_state = before
        seen[f"{variant}_runs"] = body.runs
        seen[f"{variant}_output_requires_grad"] = y.requires_grad
        seen[f"{variant}_surrounding_packs"] = hooks.packs
        seen[f"{variant}_random_state_read"] = reads.runs
    noted, make = noted_contexts()
    with torch.no_grad():
        checkpointed("non_reentrant", torch.tanh, variable(0.5), context_fn=make)
    seen["contexts_made"] = noted.count("made")
    seen["contexts_entered"] = noted.count("forward")
    return seen


@probe("N17.recording_inside", "Recording off around, on inside: packs that hooks see, and runs.", by=of_both)
def recording_inside(call):
    body = Counted(torch.enable_grad()(torch.tanh))
    with torch.no_grad(), HookCounter() as hooks:
        y = call(body, variable(0.5))
    return [hooks.packs, body.runs, y.requires_grad]


@probe("N17.nothing_requires_grad", "Recording on, but nothing to train.")
def nothing_requires_grad():
    body = Counted(torch.tanh)
    y = checkpointed("non_reentrant", body, constant(0.5))
    return {"runs": body.runs, "output_requires_grad": y.requires_grad}


@probe("N18.contexts", "How often the contexts of context_fn are made and entered: two backwards.")
def contexts():
    noted, make = noted_contexts()
    y = checkpointed("non_reentrant", torch.tanh, variable(0.5), context_fn=make).sum()
    y.backward(retain_graph=True)
    y.backward()
    return {"made": noted.count("made"), "recomputation_entered": noted.count("recomputation")}


@probe("N18.swallowed", "A forward context that swallows the function's exception.")
def swallowed():
    class Swallows(nullcontext):
        def __exit__(self, *error):
            return True

    def fails(x):
        raise ValueError("the function gave up")

    return {
        "swallowing_error": attempt("non_reentrant", fails, context_fn=lambda: (Swallows(), nullcontext())),
        "plain_error": attempt("non_reentrant", fails),
    }

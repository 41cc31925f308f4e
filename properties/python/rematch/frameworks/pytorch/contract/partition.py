"""checkpoint_sequential(): which layers are checkpointed."""

from functools import partial

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *


def layers(count, log=None):
    def layer(index):
        def run(x):
            if log is not None:
                log.append(index)
            return torch.tanh(x)

        return Counted(run)

    return [layer(i) for i in range(count)]


def runs(count, segments, **options):
    """How often each layer runs in a forward and a backward, a digit a layer."""
    functions = layers(count)
    x = variable(0.5, -0.25)
    C.checkpoint_sequential(functions, segments, x, **options).sum().backward()
    return "".join(str(f.runs) for f in functions)


def in_both_of_sequential(run):
    """The facts that `run(sequential)` returns in both variants of checkpoint_sequential()."""
    return in_both(lambda call: run(partial(C.checkpoint_sequential, use_reentrant=call is reentrant)))


def formula(reentrant):
    return {f"layers_{n}": [runs(n, k, use_reentrant=reentrant) for k in range(1, n + 1)] for n in range(1, 13)}


for variant, reentrant in VARIANTS.items():
    probe(
        f"PT1.{variant}",
        "How often each layer runs in a step, a digit a layer: for every number of layers up to "
        f"12, a word for 1, 2, 3, ... segments; {variant.replace('_', '-')}.",
    )(partial(formula, reentrant))


@probe("PT2.one_segment", "Three layers in one segment: is anything checkpointed, is a word said?")
def one_segment():
    with warned() as warnings_seen, HookCounter() as hooks:
        counts = runs(3, 1, use_reentrant=False)
    return {"runs": counts, "surrounding_packs": hooks.packs, "warnings": warnings_seen}


@probe("PT3.degenerate", "Numbers of segments and layers that make no sense.")
def degenerate():
    seen = {}
    for name, count, segments in [
        ("more_segments_than_layers", 3, 4),
        ("no_segments", 3, 0),
        ("no_layers", 0, 1),
        ("no_layers_two_segments", 0, 2),
        ("negative_segments", 3, -1),
    ]:
        seen[f"{name}_error"] = outcome(lambda: runs(count, segments, use_reentrant=False))
    seen["negative_segments_runs"] = runs(3, -1, use_reentrant=False)
    return seen


@probe(
    "PT4.order",
    "The order in which ten layers run, in four segments: forward, then backward.",
    by=in_both_of_sequential,
)
def order(sequential):
    log = []
    y = sequential(layers(10, log), 4, variable(0.5)).sum()
    forward = list(log)
    y.backward()
    return {"forward": forward, "backward": log[len(forward) :]}


@probe("PT5.interface", "What checkpoint_sequential() takes beside its three arguments.")
def interface():
    x = variable(0.5)

    def attempt(**options):
        return outcome(lambda: C.checkpoint_sequential(layers(4), 2, x, use_reentrant=False, **options))

    with warned() as warnings_seen:
        C.checkpoint_sequential(layers(4), 2, x).sum().backward()
    return {
        "preserve_rng_state_error": attempt(preserve_rng_state=False),
        "early_stop_error": attempt(early_stop=False),
        "determinism_check_error": attempt(determinism_check="none"),
        "context_fn_error": attempt(context_fn=C.noop_context_fn),
        "warnings_without_a_variant": warnings_seen,
        "two_inputs_error": outcome(lambda: C.checkpoint_sequential(layers(4), 2, x, x, use_reentrant=False)),
    }


@probe("PT5.module", "A Sequential in two segments, and lists: the verdict, by variant.")
def module():
    model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Sigmoid(), torch.nn.Tanh())
    functions = [torch.sin, torch.cos, torch.tanh, torch.exp, torch.erf]

    def gradient(model, call):
        x = variable(0.5, -0.25)
        call(model, x).sum().backward()
        return [x.grad]

    def plain(model, x):
        for function in model:
            x = function(x)
        return x

    seen = {}
    for name, reentrant in VARIANTS.items():
        call = lambda m, x: C.checkpoint_sequential(m, 2, x, use_reentrant=reentrant)
        for kind, given in (("module", model), ("list", functions)):
            verdict = judged(lambda: gradient(given, call), gradient(given, plain))
            seen[f"{name}_{kind}"] = verdict
        more = lambda: C.checkpoint_sequential([torch.sin], 1, variable(0.5), use_reentrant=reentrant, surprise=1)
        seen[f"{name}_surprise"] = said(more, "Unexpected keyword arguments: surprise")
    return seen


@probe("PT5.two_values", "Segments that hand two tensors on: can the next segment take them?")
def two_values():
    first = lambda x: (x * 1, x * 2)
    second = lambda pair: pair[0] * pair[1]
    x = variable(3.0)
    C.checkpoint_sequential([first, second], 2, x, use_reentrant=False).sum().backward()
    gradient = x.grad.item()
    return {"gradient_of_2xx_at_3": gradient}


@probe(
    "PT6.last_segment",
    "Six layers in three segments: how many tensors the surrounding hooks see saved (inputs of "
    "two segments, and what the last one saves).",
    by=in_both_of_sequential,
)
def last_segment(sequential):
    with HookCounter() as hooks:
        sequential(layers(6), 3, variable(0.5))
    return {"surrounding_packs": hooks.packs}


@probe(
    "PT6.random_state",
    "Four dropout layers in two segments: draws in a step, and the random state that it leaves.",
    by=in_both_of_sequential,
)
def random_state(sequential, **options):
    draws = []

    def layer(x):
        draws.append(torch.get_rng_state())
        return torch.dropout(x, 0.5, True)

    y = sequential([layer] * 4, 2, ramp(4, 4), **options).sum()
    before = torch.get_rng_state()
    y.backward()
    return {
        "draws": len(draws),
        "recomputes_begin_where_the_forward_did": [torch.equal(*pair) for pair in zip(draws[4:], draws)],
        "state_kept_by_backward": torch.equal(before, torch.get_rng_state()),
    }


@probe("PT6.not_preserved", "The same with preserve_rng_state=False.", by=in_both_of_sequential)
def not_preserved(sequential):
    return random_state(sequential, preserve_rng_state=False)

"""Automatic mixed precision and recomputes. On the CPU, to bfloat16."""

from contextlib import nullcontext
from functools import partial

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *

bfloat16 = torch.bfloat16
mm = torch.ops.aten.mm.default


def casting(**options):
    return torch.autocast("cpu", **({"dtype": bfloat16} | options))


def tuple_now():
    return [
        torch.is_autocast_enabled("cpu"),
        str(torch.get_autocast_dtype("cpu")).removeprefix("torch."),
        torch.is_autocast_cache_enabled(),
    ]


def tuples(variant, forward, backward):
    seen = []

    def body(x):
        seen.append(tuple_now())
        return torch.tanh(x)

    with forward:
        y = checkpointed(variant, body, variable(0.5)).sum()
    with backward:
        y.backward()
    return seen


def around_the_forward(options):
    return {v: tuples(v, casting(**options), nullcontext()) for v in VARIANTS}


for name, words, options in (
    ("tuple", "(enabled, dtype, cache) in forward and recomputation; autocast around the forward only.", {}),
    ("cache_disabled", "The same with the cast cache switched off.", {"cache_enabled": False}),
    ("float16", "The same with float16.", {"dtype": torch.float16}),
):
    probe(f"AM4.{name}", words)(partial(around_the_forward, options))


@probe("AM4.around_backward", "Autocast around the backward only.")
def around_the_backward():
    return {v: tuples(v, nullcontext(), casting()) for v in VARIANTS}


@probe("AM4.around_both", "Other settings around the backward: (enabled, dtype, cache) of all.")
def around_both():
    settings = [
        {"enabled": True},
        {"enabled": True, "dtype": torch.float16, "cache_enabled": False},
        {"enabled": False, "dtype": torch.float16},
        {"enabled": True, "cache_enabled": False},
    ]
    seen = {}
    for variant in VARIANTS:
        for i, inside in enumerate(settings):
            with casting(**settings[i - 1]):
                outside = tuple_now()
            around = casting(**settings[i - 1])
            seen[f"{variant}_{i}"] = tuples(variant, casting(**inside), around)
            with around:
                seen[f"{variant}_{i}"].append(outside == tuple_now())
    return seen


@probe("AM4.inside", "Autocast inside the function: dtypes of a product in it, forward and recomputation.", by=of_both)
def inside(call):
    x, w = ramp(2, 2).float().detach().requires_grad_(), ramp(2, 2).float().detach()
    dtypes = []

    def body(x):
        with casting():
            y = torch.mm(x, w)
        dtypes.append(str(y.dtype).removeprefix("torch."))
        return torch.tanh(y.float())

    call(body, x).sum().backward()
    return dtypes


def step(call, warm, uses=2, **options):
    """A region that multiplies by one weight several times under autocast.

    Returns its gradients, and (casts, products) that forward and backward ran. `warm`: the weight
    was already used, and so cast, before the region.
    """
    x = ramp(2, 2).float().detach().requires_grad_()
    w = ramp(2, 2).float().detach().requires_grad_()

    def body(x):
        for _ in range(uses):
            x = torch.mm(x, w)
        return torch.tanh(x)

    def counted(ops):
        return ops.counts.get("_to_copy", 0), ops.counts.get("mm", 0)

    with casting(**options):
        if warm:
            torch.mm(x, w)
        with OpCounter() as forward:
            y = call(body, x)
        loss = y.float().sum()
    with OpCounter() as backward:
        loss.backward()
    return [x.grad, w.grad], counted(forward), counted(backward)


def weight_cast(warm):
    reference, forward, plain = step(directly, warm)
    seen = {"plain_forward_casts": forward[0], "plain_forward_products": forward[1]}
    for variant, call in CALLS.items():
        gradients, forward, backward = step(call, warm)
        seen[f"{variant}_forward_casts"] = forward[0]
        seen[f"{variant}_forward_products"] = forward[1]
        seen[f"{variant}_recomputation_casts"] = backward[0] - plain[0]
        seen[f"{variant}_recomputation_products"] = backward[1] - plain[1]
        seen[f"{variant}_verdict"] = judged(lambda: gradients, reference)
    return seen


def weight_cast_selective(warm):
    selective = partial(checkpoint, context_fn=lambda: C.create_selective_checkpoint_contexts([mm]))
    reference, _, _ = step(directly, warm)
    whole = partial(selective, early_stop=False)
    return {
        "verdict": judged(lambda: step(selective, warm)[0], reference),
        "verdict_without_early_stop": judged(lambda: step(whole, warm)[0], reference),
        "verdict_without_cast_cache": judged(
            lambda: step(selective, warm, cache_enabled=False)[0], step(directly, warm, cache_enabled=False)[0]
        ),
    }


for warm, words in ((False, "cold"), (True, "warm")):
    probe(
        f"AM4.weight_cast_{words}",
        f"A float32 weight multiplied twice under autocast, the cache of casts {words} at entry: "
        "casts and products of the forward, and of the recomputation.",
    )(partial(weight_cast, warm))
    probe(
        f"AM4.weight_cast_{words}_selective",
        f"The same with a policy that saves products, the cache {words}: does backward work?",
    )(partial(weight_cast_selective, warm))

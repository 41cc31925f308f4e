"""Selective checkpointing: policies over operators, and what they save."""

import functools

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *

aten = torch.ops.aten
Policy = C.CheckpointPolicy
SAVE, RECOMPUTE = Policy.MUST_SAVE, Policy.PREFER_RECOMPUTE


def selective(policy, function, *args, mutation=False, **options):
    make = C.create_selective_checkpoint_contexts
    context_fn = functools.partial(make, policy, allow_cache_entry_mutation=mutation)
    return checkpointed("non_reentrant", function, *args, context_fn=context_fn, **options)


def saving(*ops):
    return lambda ctx, op, *args, **kwargs: SAVE if op in ops else RECOMPUTE


def kernels_in_backward(policy, function, x, **options):
    y = selective(policy, function, x, **options) if policy else function(x)
    with OpCounter() as ops:
        y.sum().backward()
    return ops.counts


@probe("SE1.policies", "Which answers of a policy keep tanh from running again: kernels in backward.")
def policies():
    seen = {}
    answers = {p.name.lower(): p for p in Policy} | {"true": True, "false": False}
    for name, answer in answers.items():
        policy = lambda ctx, op, *a, **k: answer if op is aten.tanh.default else RECOMPUTE
        counts = kernels_in_backward(policy, lambda x: torch.tanh(x * x), variable(0.5))
        seen[name] = counts.get("tanh", 0)
    return seen


@probe("SE2.calls", "How often a policy is asked, in forward and in backward; is_recompute.")
def calls():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(ctx.is_recompute)
        return RECOMPUTE

    y = selective(policy, lambda x: torch.tanh(torch.tanh(x)), variable(0.5)).sum()
    forward = len(asked)
    y.backward()
    return {
        "forward_calls": forward,
        "backward_calls": len(asked) - forward,
        "ever_told_of_a_recomputation": any(asked),
    }


@probe("SE2.invocation", "A policy that saves every second product: kernels of products in backward.")
def invocation():
    count = []

    def policy(ctx, op, *args, **kwargs):
        if op is aten.mm.default:
            count.append(1)
            return SAVE if len(count) % 2 == 0 else RECOMPUTE
        return RECOMPUTE

    w = ramp(2, 2, requires_grad=False)

    def body(x):
        for _ in range(4):
            x = torch.tanh(torch.mm(x, w))
        return x

    plain = kernels_in_backward(None, body, ramp(2, 2))["mm"]
    return {
        "recomputed_products": kernels_in_backward(policy, body, ramp(2, 2)).get("mm", 0) - plain,
        "asked_for_products": len(count),
    }


@probe("SE3.ignored", "Operators for which a policy is not asked.")
def ignored():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(op.overloadpacket.__name__)
        return RECOMPUTE

    def body(x):
        y = torch.tanh(x)
        y.detach(), y.size(), y.stride(), y.is_contiguous(), y.device
        return y.view(2, 2).sum()

    selective(policy, body, variable(0.5, 1.0, 1.5, 2.0)).backward()
    return {"asked": asked}


@probe("SE4.extra_backward", "A second backward over a retained graph, by what the policy saved.")
def extra_backward():
    seen = {}
    for name, policy in [
        ("tanh_saved", saving(aten.tanh.default)),
        ("nothing_saved", saving()),
        ("unused_saved", saving(aten.add.Tensor)),
    ]:
        y = selective(policy, lambda x: torch.tanh(x + x), variable(0.5)).sum()
        y.backward(retain_graph=True)
        seen[name] = outcome(lambda: y.backward(retain_graph=True))
    return seen


@probe("SE4.two_outputs", "Two outputs, a backward for each: a saved tensor serves one recomputation only.")
def two_outputs():
    a, b = selective(saving(aten.mul.Tensor), lambda x: (torch.tanh(x * x), torch.sigmoid(x * x)), variable(0.5))
    return {"first_error": outcome(lambda: a.sum().backward()), "second_error": outcome(lambda: b.sum().backward())}


def differing(policy, forward, recomputation):
    body = InTurn(forward, recomputation)
    return outcome(selective(policy, body, variable(0.5, 1.0), early_stop=False).sum().backward)


@probe("SE5.recomputation_differs", "A recomputation that runs an operator which the forward did not run.")
def recomputation_differs():
    policy = saving(aten.tanh.default)
    return {
        "another_operator": differing(policy, torch.tanh, torch.sigmoid),
        "once_more": differing(policy, torch.tanh, lambda x: torch.tanh(torch.tanh(x))),
        "once_less": differing(policy, lambda x: torch.tanh(torch.tanh(x)), torch.tanh),
    }


@probe("SE6.changed", "A saved result changed in place by the function, after it was saved.")
def changed():
    def body(x):
        y = x * x
        y.mul_(2)
        return torch.tanh(y)

    def gradient(call):
        x = variable(0.5)
        call(body, x).sum().backward()
        return [x.grad]

    policy = saving(aten.mul.Tensor)
    reference = gradient(directly)
    return {
        "checked": judged(lambda: gradient(functools.partial(selective, policy)), reference),
        "allowed": judged(lambda: gradient(functools.partial(selective, policy, mutation=True)), reference),
        "not_saved": judged(lambda: gradient(functools.partial(selective, saving())), reference),
    }


def storages_alive(call):
    """Of the results of five operators, how many are kept between forward and backward."""
    made = []

    def body(x):
        a = x + x
        b = torch.tanh(a)
        c = b + b
        d = torch.tanh(c)
        e = d + d
        made.extend(map(storage_of, (a, b, c, d, e)))
        return e.sum()

    y = call(body, variable(0.5))
    alive = "".join("1" if ref() is not None else "0" for ref in made[:5])
    del y
    return alive


@probe("SE7.kept", "Which results of add, tanh, add, tanh, add are kept after the forward: 1 is kept.")
def kept():
    everything = lambda ctx, op, *a, **k: SAVE
    nothing = lambda ctx, op, *a, **k: RECOMPUTE
    return {
        "plain": storages_alive(directly),
        "checkpoint": storages_alive(checkpoint),
        "save_everything": storages_alive(functools.partial(selective, everything)),
        "recompute_everything": storages_alive(functools.partial(selective, nothing)),
        "save_tanh": storages_alive(functools.partial(selective, saving(aten.tanh.default))),
    }


@probe("SE7.recompute_everything", "Recomputing everything against a plain checkpoint: kernels.")
def recompute_everything():
    body = lambda x: torch.tanh(torch.tanh(x * x) + x)
    plain = kernels_in_backward(None, functools.partial(checkpoint, body), variable(0.5))
    nothing = kernels_in_backward(saving(), body, variable(0.5))
    return {
        "checkpoint_tanh": plain.get("tanh", 0),
        "recompute_everything_tanh": nothing.get("tanh", 0),
        "same_but_for_detach": {k: v for k, v in plain.items() if k != "detach"}
        == {k: v for k, v in nothing.items() if k != "detach"},
    }


@probe("SE7.products", "sigmoid((x y) y) * y: products in forward, and in the recomputation, by policy.")
def products():
    def body(x, y):
        return torch.sigmoid(torch.matmul(torch.matmul(x, y), y)) * y

    def counts(call):
        x, y = ramp(4, 4), ramp(4, 4)
        with OpCounter() as forward:
            out = call(body, x, y)
        with OpCounter() as backward:
            out.sum().backward()
        return forward.counts.get("mm", 0), backward.counts.get("mm", 0)

    seen = {}
    _, plain = counts(directly)
    for name, call in [
        ("checkpoint", checkpoint),
        ("save_products", functools.partial(selective, saving(aten.mm.default))),
        ("save_sigmoid", functools.partial(selective, saving(aten.sigmoid.default))),
    ]:
        forward, backward = counts(call)
        seen[f"{name}_forward"] = forward
        seen[f"{name}_recomputation"] = backward - plain
    return seen


@probe("SE7.early_stop", "A saved last operator: kernels of tanh and add in the recomputation of two tanh.")
def early_stop():
    seen = {}
    body = lambda x: torch.tanh(torch.tanh(x) + x)
    x = variable(0.5)
    with OpCounter() as plain:
        body(x).sum().backward()
    # The forward adds once: the rest is what a plain backward adds.
    plain_adds = plain.counts.get("add", 0) - 1
    for name, stop in (("with_early_stop", True), ("without", False)):
        counted = Counted(body)
        y = selective(saving(aten.tanh.default), counted, variable(0.5), early_stop=stop).sum()
        with OpCounter() as ops:
            y.backward()
        seen[f"{name}_tanh_kernels"] = ops.counts.get("tanh", 0)
        seen[f"{name}_add_kernels"] = ops.counts.get("add", 0) - plain_adds
        seen[f"{name}_runs"] = counted.runs
    return seen


@probe("SE8.surrounding_hooks", "What hooks around a selective checkpoint see, and what is warned.")
def surrounding_hooks():
    seen = {}
    for name, choice in (("by_default", None), ("respected", True), ("bypassed", False)):
        with warned() as warnings_seen, HookCounter() as hooks:
            y = selective(
                saving(aten.tanh.default), torch.tanh, variable(0.5), respect_saved_tensors_hooks=choice
            ).sum()
        y.backward()
        seen[f"{name}_packs"] = hooks.packs
        seen[f"{name}_unpacks"] = hooks.unpacks
        seen[f"{name}_warnings"] = warnings_seen
    return seen


@probe("SE10.nested", "A selective checkpoint inside another: runs of each and kernels in backward.")
def nested():
    seen = {}
    for name, outer_policy, inner_policy in [
        ("both_save", saving(aten.tanh.default), saving(aten.tanh.default)),
        ("outer_saves", saving(aten.tanh.default), saving()),
        ("inner_saves", saving(), saving(aten.tanh.default)),
    ]:
        inner = Counted(lambda x: torch.tanh(x * x))
        outer = Counted(lambda x: selective(inner_policy, inner, torch.tanh(x)))
        y = selective(outer_policy, outer, variable(0.5)).sum()
        with OpCounter() as ops:
            error = outcome(y.backward)
        seen[f"{name}_error"] = error
        seen[f"{name}_runs"] = [outer.runs, inner.runs]
        seen[f"{name}_tanh_kernels"] = ops.counts.get("tanh", 0)
    return seen

"""Selective checkpointing: what policies are told, what they save, and what hooks see of that."""

from functools import cache, partial

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *
from rematch.frameworks.pytorch.contract.selective import RECOMPUTE, SAVE, Policy, aten, selective

SIN, EXP = aten.sin.default, aten.exp.default


def everything(*_, **__):
    return True


def x3():
    return variable(0.3, -0.7, 1.1)


def three_steps(x):
    """One operator after the other, each of which saves a tensor."""
    return x.sin().cos().exp()


def gradient(function, call, x=x3):
    x = x()
    call(function, x).sum().backward()
    return [x.grad]


def verdict(policy, function, x=x3, **options):
    """Of a gradient under a policy."""
    call = partial(selective, policy, **options)
    return judged(lambda: gradient(function, call, x), gradient(function, directly, x))


def executions(policy, function=three_steps):
    """Runs of sin, cos, exp in a whole step beside those of a plain one, and the verdict."""
    with OpCounter() as plain:
        reference = gradient(function, directly)
    with OpCounter() as ran:
        found = gradient(function, partial(selective, policy, early_stop=False))
    counts = [ran.counts.get(op, 0) - plain.counts.get(op, 0) for op in ("sin", "cos", "exp")]
    return [*counts, judged(lambda: found, reference)]


@probe("SE1.lists", "Lists of operators: further runs of sin, cos, exp in a step, and the verdict.")
def lists():
    return {"sin_and_exp": executions([SIN, EXP]), "cos": executions([aten.cos.default]), "none": executions([])}


@probe("SE2.told", "What a policy is told of an operator with options.")
def told():
    asked = []

    def policy(context, op, *args, **kwargs):
        asked.append((context, op, args, kwargs))
        return RECOMPUTE

    x = x3()
    out = selective(policy, lambda x: torch.std(x.exp(), dim=(0,), correction=0), x)
    context, _, args, kwargs = asked[1]
    results = [same_bits(c.op_output, r) for (c, *_), r in zip(asked, (x.exp(), out), strict=True)]
    return {
        "operators": [str(op) for _, op, _, _ in asked],
        "context": type(context).__name__,
        "operand": same_bits(args[0], x.exp()),
        "options": [list(args[1]), kwargs],
        "results": results,
    }


@probe("SE2.by_result", "A policy that goes by what an operator made: runs of add, and of log.")
def by_result():
    def policy(context, op, *args, **kwargs):
        return bool((context.op_output > 1).all())

    function = lambda x: (x.exp() + 1).log().sin()
    with OpCounter() as ran:
        selective(policy, function, x3(), early_stop=False).sum().backward()
    return {"add": ran.counts["add"], "log": ran.counts["log"]}


@probe("SE2.numbers", "Which of four sines are kept: runs in a whole step, and the verdict.")
def numbers():
    seen = {}
    for kept in ((0,), (1, 2), (0, 1, 3)):
        at = iter(range(99))
        policy = lambda c, op, *_, **__: op is SIN and next(at) in kept
        found = executions(policy, lambda x: x.sin().sin().sin().sin().cos())
        seen["_".join(map(str, kept))] = [found[0], found[-1]]
    return seen


@probe("SE5.message", "What the error says of an operator that only the recomputation runs.")
def message():
    def attempt(policy, other, *words):
        y = selective(policy, InTurn(three_steps, other), x3())
        return said(y.sum().backward, *words)

    words = "encountered during backward", "not found in storage"
    twice = "aten.sin", "index 1", *words, "nondeterministic"
    return {
        "another": attempt([SIN], lambda x: x.sin().tanh().exp(), "aten.tanh", *words),
        "once_more": attempt([aten.cos.default], lambda x: x.sin().sin().exp(), *twice),
    }


@probe("SE6.views", "A saved view that is written to before backward.", verdict="error: cached tensor changed")
def views():
    def step(call):
        made = []

        def body(x):
            made.append((x * 2).view(3, 1))
            return made[0].sin()

        x = x3()
        y = call(body, x)
        if call is not directly:
            with torch.no_grad():
                made[0].add_(1)
        y.sum().backward()
        return [x.grad]

    call = partial(selective, [aten.view.default])
    return {"verdict": judged(lambda: step(call), step(directly))}


@probe("SE6.written", "A saved result written to between: checked by default, if asked, if not.")
def written():
    def step(call):
        made = []

        def body(x):
            made.append(x.sin())
            return made[0].cos()

        x = x3()
        y = call(body, x)
        with torch.no_grad():
            made[0].add_(1)
        y.sum().backward()
        return [x.grad]

    def options(**given):
        context_fn = partial(C.create_selective_checkpoint_contexts, [SIN], **given)
        return lambda *args: checkpoint(*args, context_fn=context_fn)

    x = x3()
    reference = [(-(x.sin() + 1).sin() * x.cos()).detach()]
    changed = "allow_cache_entry_mutation"
    return {
        "by_default": judged(lambda: step(options()), reference),
        "checked": judged(lambda: step(options(**{changed: False})), reference),
        "allowed": judged(lambda: step(options(**{changed: True})), reference),
    }


@probe("SE7.results", "Verdicts where several results, a number, views are saved, options are not.")
def results():
    def with_options(x):
        y = torch.std(x.exp(), dim=(0,), correction=0)
        return y * torch.sum(x.sin(), dtype=torch.float32).double() * y.exp()

    def sorted_(x):
        values, places = torch.sort(x * 2)
        return (values.sin() * (places + values[0].item())).cos()

    viewed = lambda x: x.sin().view(2, 2).cos().t().exp()
    four = lambda: variable(1, 2, 3, 4)
    return {
        "options": verdict([], with_options, early_stop=False),
        "several": verdict([aten.sort.default], sorted_),
        "number": verdict([aten._local_scalar_dense.default], sorted_),
        "all_of_these": verdict(everything, sorted_),
        "views": verdict([aten.view.default, aten.t.default], viewed, four),
        "all_views": verdict(everything, viewed, four),
        "detached": verdict(everything, lambda x: x.sin() * x.detach()),
    }


@probe("SE8.unsaved", "Hooks around a policy that saves nothing, or a number; no hooks: warnings, packs, verdict.")
def unsaved():
    seen = {}
    of_number = lambda x: (x * x.sum().item()).sin()
    for name, policy, function in [
        ("nothing", [], three_steps),
        ("number", [aten._local_scalar_dense.default], of_number),
    ]:
        for choice in (None, True, False):
            with warned() as warnings_seen, HookCounter() as hooks:
                x = x3()
                y = selective(policy, function, x, respect_saved_tensors_hooks=choice)
            y.sum().backward()
            right = same_bits(x.grad, gradient(function, directly)[0])
            seen[f"{name}_{choice}".lower()] = [warnings_seen, hooks.packs, hooks.unpacks, right]
    with warned() as warnings_seen:
        seen["no_hooks"] = [verdict([SIN], three_steps), warnings_seen]
    return seen


@probe("SE8.nested", "How often hooks see what a policy saves in a checkpoint in a checkpoint.")
def nested():
    inner = lambda x: (x.sin().exp() * 2).cos()
    shown = []

    def pack(t):
        shown.append(t.detach().clone())
        return t

    def call(function, x):
        return checkpoint(lambda x: selective([EXP], function, x.tanh(), respect_saved_tensors_hooks=True), x)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        x = x3()
        y = call(inner, x)
    y.sum().backward()
    kept = x.tanh().sin().exp().detach()
    reference = gradient(lambda x: inner(x.tanh()), directly)
    return {"times": sum(same_bits(t, kept) for t in shown), "right": same_bits(x.grad, reference[0])}


@probe("N18.order", "The order in which contexts are asked for, entered and left, and runs.")
def order():
    seen = {}
    for stop in (True, False):
        log = []

        class Noted(Entered):
            def __exit__(self, *_):
                self.entered.append(f"end of {self.name}")

        def pair():
            log.append("asked")
            return Noted(log, "first"), Noted(log, "second")

        def body(x):
            log.append("runs")
            return x.sin()

        y = checkpoint(body, x3(), context_fn=pair, early_stop=stop)
        forward = len(log)
        y.sum().backward()
        name = "with_early_stop" if stop else "without"
        seen |= {f"{name}_forward": log[:forward], f"{name}_backward": log[forward:]}
    return seen


@cache
def effect():
    """An operator with an ordered effect, which it leaves in a list, and one without."""
    namespace = torch.library.Library("rematch_contract", "FRAGMENT")
    made = []
    for name in ("tick", "tock"):
        namespace.define(f"{name}(Tensor x) -> Tensor")
        runs = []
        namespace.impl(name, lambda x, runs=runs: runs.append(1) or x.sin(), "CPU")
        made.append((getattr(torch.ops.rematch_contract, name).default, runs))
    torch.library._register_effectful_op(made[0][0], torch.library.EffectType.ORDERED)
    return namespace, made


@probe("SE11.effects", "Runs of an operator with an ordered effect, and of one without, by answer.")
def effects():
    _, ((tick, ticks), (tock, tocks)) = effect()
    seen = {}
    for answer in (SAVE, RECOMPUTE, Policy.MUST_RECOMPUTE, Policy.PREFER_CPU_OFFLOAD, False):
        ticks.clear(), tocks.clear()
        policy = lambda c, op, *_, a=answer, **__: a if op in (tick, tock) else False
        function = lambda x: (tick(x.detach()) * tock(x.detach()) * x).cos()
        x = x3()
        selective(policy, function, x).sum().backward()
        runs = [len(ticks), len(tocks)]
        right = same_bits(x.grad, gradient(function, directly)[0])
        seen[str(getattr(answer, "name", answer)).lower()] = [*runs, right]
    return seen

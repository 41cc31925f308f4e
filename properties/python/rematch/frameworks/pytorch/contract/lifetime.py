"""How long recomputed tensors live, and the ways of going backward."""

import weakref
from functools import partial

import torch

from rematch.frameworks.pytorch.contract.probing import *


@probe(
    "N5.alive",
    "A chain of four tanh in one checkpoint: recomputed outputs alive as the gradient arrives at "
    "each of them, last layer first, and at the input.",
)
def alive_on_the_way():
    def counts(retain_graph):
        recomputed, outputs, seen = [], [], []
        recomputing = []

        def body(x):
            for _ in range(4):
                x = torch.tanh(x)
                if recomputing:
                    recomputed.append(storage_of(x))
                else:
                    x.register_hook(note)
            return x

        def note(_):
            seen.append(alive(recomputed))

        x = variable(0.5)
        x.register_hook(note)
        y = checkpoint(body, x).sum()
        recomputing.append(1)
        y.backward(retain_graph=retain_graph)
        seen.append(alive(recomputed))
        return seen

    return {"freed_graph": counts(False), "retained_graph": counts(True)}


class ReadsTwice(torch.autograd.Function):
    """x squared; its backward asks for the saved tensor twice."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (first,) = ctx.saved_tensors
        (second,) = ctx.saved_tensors
        return g * (first + second)


@probe("N5.read_twice", "A backward that asks for its saved tensor twice.", by=verdicts)
def read_twice(call, accident):
    x = variable(3.0)
    call(ReadsTwice.apply if accident else lambda x: x * x, x).sum().backward()
    return [x.grad]


@probe("N5.outside_backward", "A saved tensor read four times outside of a backward: runs after each.")
def outside_backward():
    body = Counted(torch.tanh)
    y = checkpoint(body, variable(0.5))
    node = y.grad_fn
    runs = []
    for _ in range(4):
        node._saved_result
        runs.append(body.runs)
    y.sum().backward()
    return {"runs": runs, "runs_after_a_backward": body.runs}


@probe("N5.after_forward", "Results in the middle of three tanh that are kept for backward.", by=plain_and_both)
def after_forward(call):
    results = []

    def body(x):
        a = torch.tanh(x)
        b = torch.tanh(a)
        results.extend((storage_of(a), storage_of(b)))
        return torch.tanh(b)

    y = call(body, variable(0.5))
    count = alive(results)
    del y
    return count


@probe("N5.dropped_graph", "A graph dropped without a backward: does its input die?", by=in_both)
def dropped_graph(call):
    h = variable(0.5) * 2
    storage = storage_of(h)
    y = call(torch.tanh, h)
    del h
    kept = storage() is not None
    del y
    return {"input_kept": kept, "input_kept_afterwards": storage() is not None}


@probe("N5.objects", "Objects and surrounding hooks: kept by a graph, after a backward, beyond it?")
def objects():
    class Thing:
        pass

    seen = {}
    for variant, call in CALLS.items():
        for backward in (False, True):
            thing, body = Thing(), lambda x, thing: torch.tanh(torch.tanh(x))
            kept = weakref.ref(thing)
            y = call(body, variable(0.5), thing)
            del thing
            lives = [kept() is not None]
            if backward:
                y.sum().backward(retain_graph=True)
                lives.append(kept() is not None)
            del y
            seen[f"{variant}_{'backward' if backward else 'dropped'}"] = [*lives, kept() is None]
    pack, unpack = lambda t: t, lambda t: t
    hooks = [weakref.ref(pack), weakref.ref(unpack)]
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = checkpoint(lambda n, x=variable(0.5): torch.tanh(x * n), 3)
    del pack, unpack
    seen["hooks_kept_without_a_tensor"] = [y.requires_grad and h() is not None for h in hooks]
    return seen


@probe("N5.after_backward", "The input of a checkpoint after backward, while the loss still lives.", by=in_both)
def after_backward(call):
    h = variable(0.5) * 2
    storage = storage_of(h)
    y = call(torch.tanh, h)
    loss = y.sum()
    del h, y
    loss.backward()
    return {"input_kept": storage() is not None}


def inner_gradient(x, retain_graph):
    y = torch.tanh(x)
    z = torch.sigmoid(y)
    (slope,) = torch.autograd.grad(z.sum(), x, retain_graph=retain_graph)
    return torch.tanh(x) * slope.detach()


def inner_graph(retain):
    def gradient(call):
        x = variable(0.5, -1.0)
        body = Counted(lambda x: inner_gradient(x, retain))
        call(body, x).sum().backward()
        return body.runs, [x.grad]

    _, reference = gradient(directly)
    seen = {}
    for name, call in [("with_early_stop", checkpoint), ("without", without_early_stop), ("reentrant", reentrant)]:
        runs = []

        def run():
            count, gradients = gradient(call)
            runs.append(count)
            return gradients

        seen[name] = judged(run, reference)
        seen[f"{name}_runs"] = runs[0] if runs else 0
    return seen


for retain, words in ((True, "retained"), (False, "freed")):
    probe(
        f"N14.inner_graph_{words}", f"A function that differentiates inside, its inner graph {words}: verdict and runs."
    )(partial(inner_graph, retain))


@probe("N15.grad", "torch.autograd.grad(): runs, verdict, and .grad left alone.", by=against_plain)
def through_grad(call):
    x, w = variable(0.5), variable(2.0)
    body = Counted(lambda x: torch.tanh(x * w))
    (g,) = torch.autograd.grad(call(body, x).sum(), x)
    return body.runs, [g, x.grad, w.grad]


@probe("N15.inputs", "backward(inputs=...) into one of two leaves.")
def through_inputs():
    others = []

    def gradient(call):
        x, w = variable(0.5), variable(2.0)
        body = Counted(lambda x: torch.tanh(x * w))
        call(body, x).sum().backward(inputs=[w])
        others.append(x.grad is not None)
        return body.runs, [x.grad, w.grad]

    return against_plain(gradient) | {"other_leaf_has_gradient": others[0]}


@probe("N15.roots", "Two outputs of one checkpoint and one of another as roots of one backward.", by=against_plain)
def roots(call):
    x = variable(0.5, -1.0)
    first = Counted(lambda x: (torch.tanh(x), torch.sigmoid(x)))
    second = Counted(torch.tanh)
    a, b = call(first, x)
    c = call(second, b)
    torch.autograd.backward([a.sum(), b.sum(), c.sum()])
    return [first.runs, second.runs], [x.grad]


@probe("N15.part_of_the_graph", "Backward from one output, then from the other, nothing retained.", by=against_plain)
def part_of_the_graph(call):
    x, w = variable(0.5), variable(2.0)
    body = Counted(lambda x: (torch.tanh(x * w), torch.sigmoid(x)))
    a, b = call(body, x)
    runs = []
    a.sum().backward()
    runs.append(body.runs)
    b.sum().backward()
    runs.append(body.runs)
    return runs, [x.grad, w.grad]


@probe("N15.double_backward", "The gradient of a gradient, compared with the plain one.", by=against_plain)
def double_backward(call):
    x = variable(2.0, 3.0)
    body = Counted(lambda x: x * x * x)
    (g,) = torch.autograd.grad(call(body, x).sum(), x, create_graph=True)
    (gg,) = torch.autograd.grad(g.sum(), x)
    return body.runs, [g, gg]


def two_outputs():
    """Of a checkpoint, and what its recomputation makes for both."""
    recomputed = []
    forward = [True]

    def body(x):
        a, b = torch.tanh(x), torch.sigmoid(x)
        if not forward:
            recomputed.extend((storage_of(a), storage_of(b)))
        return a, b

    outputs = checkpoint(body, variable(0.5), early_stop=False)
    forward.clear()
    return *outputs, recomputed


@probe("N5.leftovers", "What a recomputation recomputed and its backward did not use, after that backward.")
def leftovers_of_a_backward():
    a, b, recomputed = two_outputs()
    a.sum().backward()
    return {"alive_while_the_graph_is": alive(recomputed), "graph_alive": b is not None}

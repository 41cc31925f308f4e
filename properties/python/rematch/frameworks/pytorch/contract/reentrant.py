"""The reentrant variant: a node of its own that recomputes and differentiates."""

import dataclasses
from collections import namedtuple
from functools import partial

import torch

from rematch.frameworks.pytorch.contract.probing import *


@probe("RE1.forward", "What the forward leaves behind for a body of a product and a tanh.")
def forward():
    x, w = variable(0.5, 2.0), variable(3.0, -1.0)
    modes = []

    def body(x):
        modes.append(torch.is_grad_enabled())
        return torch.tanh(x * w)

    with HookCounter() as hooks:
        y = reentrant(body, x)
    edges = [node for node, _ in y.grad_fn.next_functions if node is not None]
    y.sum().backward()
    return {
        "edges": len(edges),
        "edges_to_leaves": sum(hasattr(node, "variable") for node in edges),
        "surrounding_packs": hooks.packs,
        "surrounding_unpacks": hooks.unpacks,
        "recording_in_forward_and_recomputation": modes,
    }


@probe(
    "RE1.other_arguments",
    "Arguments between tensors that are none: what forward and recomputation get, and the verdict.",
)
def other_arguments():
    def run(call):
        marker = object()
        x, y, z = variable(0.5, 2.0), variable(3.0, -1.0), constant(7.0, 4.0)

        def body(*given):
            trains = [v.requires_grad for v in given if isinstance(v, torch.Tensor)]
            got.append([len(given), trains, given[3] is marker, given[0], given[5]])
            return torch.sin(given[1] * given[2]) * given[4]

        call(body, "word", x, y, marker, z, None).sum().backward()
        return [x.grad, y.grad]

    seen = {}
    for variant, call in CALLS.items():
        got = []
        reference = run(directly)
        got.clear()
        seen[f"{variant}_verdict"] = judged(lambda: run(call), reference)
        seen[f"{variant}_got"] = got
    return seen


@probe("N19.other_outputs", "Outputs that are no tensors, or hold some: same objects, and verdict.")
def other_outputs():
    thing = object()
    returned = [thing, None, [thing], {"a": 1}]
    same = [checkpoint(lambda x, r=r: r, variable(0.5)) is r for r in returned]

    def nested(call):
        x = variable(0.5, -1.0)
        out = call(lambda x: {"a": [x.sin()], "b": thing}, x)
        out["a"][0].sum().backward()
        return [x.grad]

    def mixed(call):
        x = variable(0.5, -1.0)
        a, b, c, d = call(lambda x: (x.sin(), thing, x.detach(), x.cos()), x)
        assert b is thing
        (2 * a + d).sum().backward()
        return [x.grad]

    of_nested = judged(lambda: nested(checkpoint), nested(directly))
    return {"same_objects": same, "nested_verdict": of_nested} | {
        f"mixed_{variant}_verdict": verdict for variant, verdict in alike(mixed).items()
    }


@probe("N9.keywords", "A tensor and a number by keyword: the verdict, and what each run gets.")
def keywords():
    powers = []

    def run(call):
        def body(x, *, scale, power):
            powers.append(power)
            return (x * scale).sin() ** power

        x, scale = variable(0.5, -1.0), variable(2.0, 3.0)
        call(body, x, scale=scale, power=3).sum().backward()
        return [x.grad, scale.grad]

    reference = run(directly)
    powers.clear()
    return {"verdict": judged(lambda: run(checkpoint), reference), "powers": powers}


@probe("RE4.no_tensor_that_trains", "Weights in a function without an input that trains, or any.")
def no_tensor_that_trains():
    seen = {}
    for name, inputs in [("frozen", (constant(2.0),)), ("number", (2,)), ("none", ())]:

        def run(call):
            w = variable(3.0)
            call(lambda *i: torch.tanh(w * 3) * sum(i, start=1), *inputs).sum().backward()
            return [w.grad]

        with warned() as warnings_seen:
            seen[name] = judged(lambda: run(checkpoint), run(directly))
        seen[f"{name}_warnings"] = warnings_seen
    return seen


def partial_backward(by_grad):
    body = Counted(torch.tanh)
    x, later = variable(0.5), variable(0.5)
    # The root is the checkpoint itself: what lies before it would be walked, and freed.
    loss = reentrant(body, x)
    return {
        "error": outcome(lambda: torch.autograd.grad(loss, x) if by_grad else loss.backward(inputs=[x])),
        "runs": body.runs,
        "gradient_left": x.grad is not None,
        "backward_of_the_same_graph_error": outcome(loss.backward),
        "later_backward_error": outcome(lambda: reentrant(torch.tanh, later).sum().backward()),
        "later_gradient_left": later.grad is not None,
    }


for name, words in (("grad", "torch.autograd.grad()"), ("inputs", "backward(inputs=...)")):
    probe(f"RE2.{name}", f"{words} through a reentrant checkpoint, then a backward elsewhere.")(
        partial(partial_backward, name == "grad")
    )


@probe("RE3.recomputation", "What the recomputation is given, and how much of the function it runs.")
def recomputation():
    x, w = variable(0.5), variable(3.0)
    h, frozen = x * 2, constant(1.0)
    seen, tail = [], []

    def body(h, frozen):
        seen.append((h.is_leaf, h.requires_grad, frozen.requires_grad, h.data_ptr()))
        y = torch.tanh(h * w) + frozen
        tail.append(1)
        return y + 1

    reentrant(body, h, frozen).sum().backward()
    return {
        "forward_input_is_leaf": seen[0][0],
        "recomputation_input_is_leaf": seen[1][0],
        "recomputation_inputs_require_grad": [seen[1][1], seen[1][2]],
        "recomputation_input_shares_memory": seen[0][3] == seen[1][3],
        "runs_after_the_last_saved": len(tail),
        "parameter_gradient_left": w.grad is not None,
    }


@probe("RE4.frozen_input", "A trainable weight in a function whose only input is frozen.")
def frozen_input(call=reentrant):
    w = variable(2.0)
    with warned() as warnings_seen:
        y = call(lambda x: torch.tanh(x * w), constant(0.5))
    error = outcome(lambda: y.sum().backward())
    seen = {"warnings": warnings_seen, "output_requires_grad": y.requires_grad, "backward_error": error}
    return seen | {"weight_has_gradient": w.grad is not None}


@probe("RE4.trainable_after", "The same, followed by a weight that trains outside.")
def trainable_after():
    w, v = variable(2.0), variable(3.0)
    (reentrant(lambda x: torch.tanh(x * w), constant(0.5)) * v).sum().backward()
    return {"inner_has_gradient": w.grad is not None, "outer_has_gradient": v.grad is not None}


def one_of_two(*inputs):
    w = variable(2.0)
    with warned() as warnings_seen:
        y = reentrant(lambda a, b: torch.tanh(a * w) * b, *(make(0.5) for make in inputs))
    y.sum().backward()
    return {"warnings": warnings_seen, "weight_has_gradient": w.grad is not None}


probe("RE4.one_input_trains", "One input of two requires grad.")(partial(one_of_two, variable, constant))
probe("RE4.the_other_trains", "The same, and it is the second.")(partial(one_of_two, constant, variable))


@probe("RE4.nothing_trains", "A function and inputs without anything to train.")
def nothing_trains():
    with warned() as warnings_seen:
        y = reentrant(torch.tanh, constant(0.5))
    return {"warnings": warnings_seen, "output_requires_grad": y.requires_grad}


@probe("RE4.non_reentrant", "The frozen input in the other variant.")
def frozen_input_non_reentrant():
    seen = frozen_input(checkpoint)
    assert seen.pop("backward_error") == "no error"
    return seen


@probe("RE5.outputs", "Which of (2t, t.detach(), an integer tensor) require grad.", by=plain_and_both)
def outputs(call):
    made = call(lambda t: (t * 2, t.detach(), (t > 0).to(torch.int32)), variable(0.5, -1.0))
    return [o.requires_grad for o in made]


@probe("RE5.all_detached", "A function whose outputs are all detached.", by=in_both)
def all_detached(call):
    y = call(lambda t: torch.tanh(t).detach(), variable(0.5))
    return {"requires_grad": y.requires_grad, "backward_error": outcome(lambda: y.sum().backward())}


@probe("RE5.only_detached_used", "Backward from the detached one of two outputs.")
def only_detached_used():
    x = variable(0.5)
    _, detached = reentrant(lambda t: (torch.tanh(t), torch.sigmoid(t).detach()), x)
    error = outcome(lambda: detached.sum().backward())
    return {"backward_error": error, "gradient_is_zero": x.grad is not None and bool((x.grad == 0).all())}


@dataclasses.dataclass
class Pair:
    a: object
    b: object


NamedPair = namedtuple("NamedPair", "a b")


@probe("RE6.arguments", "An input that requires grad inside a list, a dict, a dataclass: outputs.")
def nested_arguments():
    seen = {}
    for name, argument, take in [
        ("list", lambda x: [x], lambda a: a[0]),
        ("dict", lambda x: {"x": x}, lambda a: a["x"]),
        ("dataclass", lambda x: Pair(x, 0), lambda a: a.a),
    ]:
        for variant in VARIANTS:
            x = variable(0.5)
            y = checkpointed(variant, lambda a: torch.tanh(take(a)), argument(x))
            seen[f"{name}_{variant}_output_requires_grad"] = y.requires_grad
    return seen


@probe("RE6.results", "Outputs in a dataclass, a list, a NamedTuple: what comes back.")
def structured_results():
    seen = {}
    for name, make, take in [
        ("dataclass", lambda t: Pair(t * 2, t * 3), lambda r: r.a),
        ("list", lambda t: [t * 2, t * 3], lambda r: r[0]),
        ("named_tuple", lambda t: NamedPair(t * 2, t * 3), lambda r: r[0]),
    ]:
        for variant in VARIANTS:
            result = checkpointed(variant, make, variable(0.5))
            seen[f"{name}_{variant}_type"] = type(result).__name__
            seen[f"{name}_{variant}_requires_grad"] = take(result).requires_grad
    return seen


def firings(register):
    """Of a hook, registered by that method, on a weight that one to four checkpoints in turn use."""

    def count(call, uses):
        w, h = variable(1.5), variable(0.5)
        fired = []
        getattr(w, register)(lambda _: fired.append(1))
        for _ in range(uses):
            h = call(lambda h: torch.tanh(h * w), h)
        h.sum().backward()
        return len(fired)

    return plain_and_both(lambda call: [count(call, k) for k in range(1, 5)])


probe("RE8.tensor_hook", "Firings of a hook on a weight used in one to four checkpoints.")(
    partial(firings, "register_hook")
)
probe("RE8.accumulation_hook", "The same for a hook that runs after each accumulation into .grad.")(
    partial(firings, "register_post_accumulate_grad_hook")
)


@probe("RE9.input_changed", "An input changed in place between forward and backward.")
def input_changed():
    x = variable(0.5)
    h = x * 2
    y = reentrant(torch.tanh, h).sum()
    h.mul_(3)
    return {"backward_error": outcome(y.backward)}


@probe("RE10.changes_an_argument_that_trains", "A function that scales its argument in place.")
def changes_an_argument_that_trains():
    seen = {}
    for name, call in (("plain", directly), ("reentrant", reentrant)):
        h, forward = variable(2.0), []
        error = outcome(lambda: forward.append(call(lambda h, m: (m.mul_(3) * h).sum(), h, h * 1)))
        seen[f"{name}_forward_error"] = error
        seen[f"{name}_backward_error"] = outcome(forward[0].backward) if forward else error
    return seen


@probe("RE10.changes_a_constant_argument", "A function that scales a frozen argument in place.")
def changes_a_constant_argument():
    def gradient(call):
        h, m = variable(2.0), constant(5.0)
        call(lambda h, m: (m.mul_(3) * h).sum(), h, m).backward()
        return h.grad.item()

    return {"plain_gradient": int(gradient(directly)), "reentrant_gradient": int(gradient(reentrant))}


@probe("RE11.identity", "A function that returns its input: the same object, the same memory?", by=in_both)
def identity(call):
    h = variable(0.5) * 2
    y = call(lambda t: t, h)
    return {"same_object": y is h, "same_memory": y.data_ptr() == h.data_ptr(), "same_maker": y.grad_fn is h.grad_fn}


@probe("RE12.retain_graph", "Runs of the function after each of three backwards, graph retained.")
def retain_graph():
    return runs_of_backwards(reentrant, 3)


@probe("RE12.walked_twice", "Two backwards without retaining the graph.")
def walked_twice():
    y = reentrant(torch.tanh, variable(0.5)).sum()
    y.backward()
    return {"second_backward_error": outcome(y.backward)}


@probe("RE12.nesting", "Runs of the innermost function at nesting depths one to five.")
def nesting_depths():
    def runs(depth):
        leaf = Counted(torch.tanh)
        body = leaf
        for _ in range(depth - 1):
            body = lambda x, inner=body: reentrant(inner, x)
        reentrant(body, variable(0.5)).sum().backward()
        return leaf.runs

    return {"leaf_runs": [runs(depth) for depth in range(1, 6)]}


@probe("RE13.create_graph", "backward(create_graph=True), and the gradient of the gradient.", by=plain_and_both)
def create_graph(call):
    x = variable(0.5)
    call(lambda x: x * x * x, x).sum().backward(create_graph=True)
    first = x.grad
    if not first.requires_grad:
        return "has no history"
    return outcome(lambda: torch.autograd.grad(first, x))

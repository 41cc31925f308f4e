"""The non-reentrant variant: what is saved, when it is recomputed, where recomputation stops."""

import contextlib
import re
import threading
from functools import partial

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *


@probe("N1.hidden", "A body that saves four tensors: what the surrounding hooks see of it.")
def hidden():
    x, w = variable(0.5), variable(2.0)
    body = lambda x: torch.tanh(torch.tanh(x * w))
    with HookCounter() as plain:
        body(x)
    with HookCounter() as hooks:
        y = checkpoint(body, x)
    packs = hooks.packs
    y.sum().backward()
    return {"plain_packs": plain.packs, "checkpointed_packs": packs, "checkpointed_unpacks": hooks.unpacks}


@probe("N1.two_inputs", "Two inputs of which one is frozen: what the surrounding hooks see.")
def two_inputs():
    with HookCounter() as hooks:
        checkpoint(lambda x, c: torch.tanh(x) * c, variable(0.5), constant(2.0))
    return {"packs": hooks.packs}


@probe("N1.meta", "Tensors without data: device and shape of the gradient.", by=of_both)
def meta(call):
    x = torch.empty(3, device="meta", requires_grad=True)
    call(lambda x: x.sin().cos(), x).sum().backward()
    return [x.grad.device.type, list(x.grad.shape)]


@probe("N1.positions", "The third of four saved tensors comes out in another shape.")
def positions():
    third = InTurn(lambda a: a, lambda a: a[:1])

    def body(x):
        return torch.tanh(torch.tanh(third(torch.tanh(torch.tanh(x)))).sum())

    y = checkpoint(body, variable(0.5, 1.0))
    try:
        y.backward()
    except C.CheckpointError as error:
        return {
            "positions_named": [int(n) for n in re.findall(r"at position (\d+)", str(error))],
            "compared": sorted(set(re.findall(r"'(shape|dtype|device|stride|layout)'", str(error)))),
        }
    return {"positions_named": [], "compared": []}


@probe("N2.one_recomputation", "A body that saves four tensors, walked by one backward.")
def one_recomputation():
    w = variable(2.0)
    body = Counted(lambda x: torch.tanh(torch.tanh(x * w)))
    checkpoint(body, variable(0.5)).sum().backward()
    return {"runs": body.runs}


@probe("N2.two_outputs", "Two outputs of one checkpoint: one backward each, and one for both.")
def two_outputs():
    def run(together):
        body = Counted(lambda x: (torch.tanh(x), torch.sigmoid(x)))
        a, b = checkpoint(body, variable(0.5))
        if together:
            (a + b).sum().backward()
        else:
            a.sum().backward()
            b.sum().backward()
        return body.runs

    return {"one_backward_runs": run(True), "two_backwards_runs": run(False)}


def one_backward(call, nests):
    """Three forwards of two segments that share a weight, the second within the first or behind it,
    and one backward: the gradients, and the draws of each run of a segment. Small whole numbers
    make sums exact in every order."""
    weight, drawn = variable(2, -1, 3), {}
    inputs = [variable(1, 2, 3), variable(-2, 1, 5), variable(4, -3, 2)]

    def masked(x, name, forward):
        mask = torch.dropout(torch.ones(3), 0.5, True)
        drawn.setdefault(f"{name} {forward}", []).append(mask.tolist())
        return x * weight * mask

    def second(x, forward):
        return masked(x, "second", forward)

    def first(x, forward):
        x = masked(x, "first", forward)
        return call(second, x, forward) if nests else x

    def run(x, forward):
        x = call(first, x, forward)
        return x if nests else call(second, x, forward)

    seed(5)
    sum((run(x, i) ** 2).sum() for i, x in enumerate(inputs)).backward()
    return [leaf.grad for leaf in (weight, *inputs)], drawn


@probe(
    "N2.several_forwards",
    "Three forwards of two segments with a weight and draws, in a row or nested, and one backward: "
    "the verdict, runs of the first and of the second, and whether each draws what it drew.",
)
def several_forwards():
    seen = {}
    for name, call in [*CALLS.items(), ("without_early_stop", without_early_stop)]:
        for nests in (False, True):
            reference, masks = one_backward(directly, nests)
            gradients, drawn = one_backward(call, nests)
            seen[f"{name}_{'nested' if nests else 'in_a_row'}"] = [
                judged(lambda: gradients, reference),
                *(sorted({len(drawn[k]) for k in drawn if w in k}) for w in ("first", "second")),
                all(mask == masks[k][0] for k in drawn for mask in drawn[k]),
            ]
    return seen


@probe("N2.retain_graph", "Runs of the function after each of three backwards, graph retained.")
def retain_graph():
    return runs_of_backwards(checkpoint, 3)


@probe("N2.walked_twice", "Two backwards without retaining the graph.")
def walked_twice():
    body = Counted(torch.tanh)
    y = checkpoint(body, variable(0.5)).sum()
    y.backward()
    return {"second_backward_error": outcome(y.backward), "runs": body.runs}


def tail_runs(option=True, scopes=(), during_backward=()):
    """Runs of what comes after the last saved tensor: 1 when the recomputation stopped early."""
    tail = Counted(lambda x: x + 1)
    with scopes_of(scopes):
        y = checkpoint(lambda x: tail(torch.tanh(x)), variable(0.5), early_stop=option)
    with scopes_of(during_backward):
        y.sum().backward()
    return tail.runs


def scopes_of(values):
    stack = contextlib.ExitStack()
    for value in values:
        stack.enter_context(C.set_checkpoint_early_stop(value))
    return stack


@probe("N3.stop", "Runs of an op after the last saved tensor.")
def stop():
    return {"with_early_stop": tail_runs(True), "without": tail_runs(False)}


@probe("N3.precedence", "The option against scopes, inner against outer: runs of the tail.")
def precedence():
    return {
        "option_off_scope_on": tail_runs(False, [True]),
        "option_on_scope_off": tail_runs(True, [False]),
        "scope_off_around_scope_on": tail_runs(False, [False, True]),
        "scope_on_around_scope_off": tail_runs(True, [True, False]),
        "scope_off_in_backward_only": tail_runs(True, [], [False]),
        "scope_on_in_backward_only": tail_runs(False, [], [True]),
        "option_off_scope_on_then_off_in_backward": tail_runs(False, [True], [False]),
    }


@probe("N3.scope_without_choice", "A scope that chooses nothing leaves the option as it is.")
def scope_without_choice():
    return {"option_on": tail_runs(True, [False, None]), "option_off": tail_runs(False, [True, None])}


@probe("N3.scope_after_an_exception", "A scope that an exception left: the option counts again.")
def scope_after_an_exception():
    try:
        with C.set_checkpoint_early_stop(False):
            raise ValueError
    except ValueError:
        pass
    return {"tail_runs": tail_runs(True)}


@probe("N3.nothing_saved", "A function that saves nothing.")
def nothing_saved():
    body = Counted(lambda x: x + x)
    checkpoint(body, variable(0.5)).sum().backward()
    return {"runs": body.runs}


gelu = torch.nn.functional.gelu
OPS = {
    "input_saved": ("The one saved tensor is the op's input (gelu).", lambda: gelu),
    "output_saved": ("The one saved tensor is the op's output (tanh).", lambda: torch.tanh),
    "two_ops": ("Two ops that save their input (gelu).", lambda: lambda x: gelu(gelu(x))),
    "weights_after": (
        "A trainable product as the last op: both of its operands are saved.",
        lambda: lambda x, w=variable(3.0): torch.tanh(x) * w,
    ),
}


def kernels(name):
    """In the recomputation: runs before and after these ops, and runs of kernels."""

    def ops_in_backward(call):
        before, after, function = Counted(lambda t: t), Counted(lambda t: t), OPS[name][1]()
        y = call(lambda x: after(function(before(x))), variable(0.5))
        with OpCounter() as ops:
            y.backward(torch.ones_like(y))
        # The hooks detach what they are given.
        return before.runs, after.runs, sum(ops.counts.values()) - ops.counts.get("detach", 0)

    _, _, plain = ops_in_backward(directly)
    # Random state is read by an op, too.
    entered, left, ops = ops_in_backward(lambda f, *a: checkpoint(f, *a, preserve_rng_state=False))
    return {"entered": entered, "left": left, "kernel_runs_in_recomputation": ops - plain}


for name, (words, _) in OPS.items():
    probe(f"N3.{name}", words)(partial(kernels, name))


def rrelu(x):
    return torch.nn.functional.rrelu(x, 0.25, 0.5, training=True)


def gradient_of_noise(body, call):
    seed(7)
    # New memory holds NaN, lest it hold the forward's noise by chance.
    torch.use_deterministic_algorithms(True)
    x = variable(*[-1.0] * 64)
    call(body, x).sum().backward()
    return [x.grad]


@probe("N4.save_then_fill", "rrelu, whose noise is saved before the kernel fills it: gradients.")
def save_then_fill():
    reference = gradient_of_noise(rrelu, directly)
    verdict = lambda call: judged(lambda: gradient_of_noise(rrelu, call), reference)
    return {
        "reentrant": verdict(reentrant),
        "with_early_stop": verdict(checkpoint),
        "without": verdict(without_early_stop),
    }


@probe("N4.followed", "The same, followed by a tanh, which is saved later.")
def followed():
    body = lambda x: torch.tanh(rrelu(x))
    reference = gradient_of_noise(body, directly)
    return {"with_early_stop": judged(lambda: gradient_of_noise(body, checkpoint), reference)}


@probe("N19.unused_output", "Two outputs of which one is not used.", by=verdicts)
def unused_output(call, accident):
    x, w = variable(0.5, -1.0), variable(2.0, 3.0)
    used, _ = call(lambda x: (torch.tanh(x * w), torch.sigmoid(x)), x)
    used.sum().backward()
    return [x.grad, w.grad]


@probe("N19.integer_output", "An integer output beside the one that is differentiated.", by=verdicts)
def integer_output(call, accident):
    x = variable(0.5, -1.0)
    used, signs = call(lambda x: (torch.tanh(x), (x > 0).to(torch.int32)), x)
    used.sum().backward()
    return [x.grad, signs]


@probe("N19.same_tensor_twice", "One tensor given as two inputs.", by=verdicts)
def same_tensor_twice(call, accident):
    x = variable(0.5, -1.0)
    call(lambda a, b: torch.tanh(a) * b, x, x).sum().backward()
    return [x.grad]


@probe("N19.weight_inside_and_outside", "Firings of a hook on a weight used inside and outside.", by=plain_and_both)
def weight_inside_and_outside(call):
    w = variable(1.5)
    count = []
    w.register_hook(lambda g: count.append(1))
    (call(lambda h: torch.tanh(h * w), variable(0.5)) * w).sum().backward()
    return len(count)


@probe("N20.thread", "Whether a recomputation on the CPU runs on the thread that called backward.", by=in_both)
def thread(call):
    threads = []

    def body(x):
        threads.append(threading.get_ident())
        return torch.tanh(x)

    call(body, variable(0.5)).sum().backward()
    return {"recomputes_on_the_callers_thread": threads[0] == threads[1]}


@probe("N20.other_thread", "A backward on another thread: autocast and draws, as in the forward?", by=of_both)
def other_thread(call):
    found = []

    def body(x):
        found.append((torch.is_autocast_enabled("cpu"), torch.rand(3).tolist()))
        return torch.tanh(x)

    x = variable(0.5)
    with torch.autocast("cpu", torch.bfloat16):
        y = call(body, x)
    thread = threading.Thread(target=lambda: y.sum().backward())
    thread.start()
    thread.join()
    return [len(found), found[0] == found[-1], x.grad is not None]

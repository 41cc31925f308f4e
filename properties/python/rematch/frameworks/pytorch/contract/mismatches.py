"""Recomputations that differ from their forward, and functions that throw."""

from functools import partial

import torch

from rematch.frameworks.pytorch.contract.probing import *


def mismatch(forward, recomputation, variant="non_reentrant", values=(0.5, 1.0), **options):
    """The error of a backward whose recomputation runs another function than the forward did."""
    body = InTurn(forward, recomputation)
    return outcome(checkpointed(variant, body, variable(*values), **options).sum().backward)


tanh = torch.tanh
DIFFERING = {
    "fewer": ("one tensor, the forward saved two", lambda x: tanh(tanh(x)), tanh),
    "more": ("two tensors, the forward saved one", tanh, lambda x: tanh(tanh(x))),
    "other_shape": ("a smaller tensor", lambda x: tanh(x).sum(), lambda x: tanh(x[:1]).sum()),
    "other_dtype": ("float32 where the forward saved float64", tanh, lambda x: tanh(x.float()).double()),
}


def by_options(name):
    _, forward, recomputation = DIFFERING[name]
    return {
        "with_early_stop": mismatch(forward, recomputation),
        "without": mismatch(forward, recomputation, early_stop=False),
        "with_early_stop_unchecked": mismatch(forward, recomputation, determinism_check="none"),
        "without_unchecked": mismatch(forward, recomputation, early_stop=False, determinism_check="none"),
        "reentrant": mismatch(forward, recomputation, "reentrant"),
    }


for name, (words, *_) in DIFFERING.items():
    probe(f"N6.{name}", f"The recomputation saves {words}.")(partial(by_options, name))


@probe("N6.other_device", "The recomputation saves a tensor on the meta device.")
def other_device():
    return {"with_early_stop": mismatch(tanh, lambda x: tanh(x.to("meta")))}


@probe("N6.other_strides", "The recomputation saves the same values with other strides.")
def other_strides():
    def gradient(recomputation):
        x = ramp(3, 2)
        checkpoint(InTurn(tanh, recomputation), x).sum().backward()
        return [x.grad]

    changed = lambda x: tanh(x.t().contiguous().t())
    return {"with_early_stop": judged(lambda: gradient(changed), gradient(tanh))}


@probe("N6.freed_holder", "The recomputation differs in a tensor that the graph has let go of.")
def freed_holder():
    same = lambda x: x
    second = InTurn(same, same, lambda x: x[:1])
    body = lambda x: (tanh(x), torch.sigmoid(second(x)), tanh(x))
    a, b, c = checkpoint(body, variable(0.5, 1.0))
    b.sum().backward()
    return {"later_backward_error": outcome(c.sum().backward)}


@probe(
    "N6.values", "The recomputation computes other values in the same shapes: a count from call to call.", by=verdicts
)
def values(call, accident):
    x = variable(0.5, -1.0)
    body = InTurn(tanh, lambda x: tanh(x * (2 if accident else 1)))
    call(body, x).sum().backward()
    return [x.grad]


@probe("N7.none", "determinism_check='none': a shape that the graph can still read.")
def unchecked():
    def gradient(call, **options):
        x = variable(0.5, 1.0)
        body = InTurn(tanh, lambda x: tanh(x.reshape(1, 2)))
        call(lambda x: body(x).sum(), x, **options).backward()
        return [x.grad]

    reference = gradient(directly)
    return {
        "default": judged(lambda: gradient(checkpoint), reference),
        "none": judged(lambda: gradient(checkpoint, determinism_check="none"), reference),
    }


def settings_left(x):
    with HookCounter() as hooks:
        tanh(x)
    return {"recording": torch.is_grad_enabled(), "hooks_left": hooks.packs != 1}


@probe("N18.throws_in_recomputation", "A function that throws in its recomputation: state afterwards.", by=in_both)
def throws_in_recomputation(call):
    runs = []

    def body(x):
        runs.append(1)
        y = torch.tanh(torch.dropout(x, 0.5, True))
        if len(runs) == 2:
            raise ValueError("the function gave up")
        return torch.tanh(y)

    x = ramp(8)
    y = call(body, x).sum()
    before = torch.get_rng_state()
    error = outcome(lambda: y.backward(retain_graph=True))
    kept = torch.equal(before, torch.get_rng_state())
    left = settings_left(x)
    again = outcome(y.backward)
    return {"error": error, "random_state_kept": kept, **left, "second_attempt_error": again, "runs": len(runs)}


@probe("N18.throws_in_forward", "A function that throws in its forward: state afterwards.", by=in_both)
def throws_in_forward(call):
    def body(x):
        torch.dropout(x, 0.5, True)
        raise ValueError("the function gave up")

    x = variable(0.5, 1.0)
    before = torch.get_rng_state()
    error = outcome(lambda: call(body, x))
    put_back = torch.equal(before, torch.get_rng_state())
    return {"error": error, "random_state_put_back": put_back, **settings_left(x)}


@probe("N18.mismatch_then_again", "A recomputation that differs once: is the next backward right?")
def mismatch_then_again():
    x, reference = variable(0.5, 1.0), variable(0.5, 1.0)
    tanh(reference).sum().backward()
    y = checkpoint(InTurn(tanh, lambda x: tanh(x[:1]), tanh), x).sum()
    return {
        "first_error": outcome(lambda: y.backward(retain_graph=True)),
        "second_error": outcome(y.backward),
        "gradient_right": same_bits(x.grad, reference.grad),
    }


@probe(
    "N7.inner_gradient",
    "A function that differentiates inside and then saves another shape in the "
    "recomputation of the outer backward: is it noticed?",
)
def inner_gradient():
    def run(**options):
        # The first two runs are the forward and the recomputation for the inner gradient.
        same = lambda x: x
        shape = InTurn(same, same, lambda x: x.reshape(1, 2))

        def body(x):
            shaped = shape(x)
            torch.autograd.grad(tanh(x).sum(), x)
            return tanh(shaped).sum()

        return outcome(checkpoint(body, variable(0.5, 1.0), **options).backward)

    return {"with_early_stop": run(), "without": run(early_stop=False)}

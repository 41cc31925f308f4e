"""Recomputations that differ from their forward, and functions that throw."""

from semantics.probing import *


def mismatch(forward, recomputation, variant="non_reentrant", values=(0.5, 1.0), **options):
    """The error of a backward whose recomputation runs another function than the forward did."""
    runs = []
    x = variable(*values)

    def body(x):
        runs.append(1)
        return forward(x) if len(runs) == 1 else recomputation(x)

    y = checkpointed(variant, body, x, **options).sum()
    return outcome(y.backward)


def by_options(forward, recomputation):
    return {
        "with_early_stop": mismatch(forward, recomputation),
        "without": mismatch(forward, recomputation, early_stop=False),
        "with_early_stop_unchecked": mismatch(forward, recomputation, determinism_check="none"),
        "without_unchecked": mismatch(
            forward, recomputation, early_stop=False, determinism_check="none"
        ),
        "reentrant": mismatch(forward, recomputation, "reentrant"),
    }


tanh = torch.tanh


@probe("N6.fewer", "The recomputation saves one tensor, the forward saved two.")
def fewer():
    return by_options(lambda x: tanh(tanh(x)), tanh)


@probe("N6.more", "The recomputation saves two tensors, the forward saved one.")
def more():
    return by_options(tanh, lambda x: tanh(tanh(x)))


@probe("N6.other_shape", "The recomputation saves a smaller tensor.")
def other_shape():
    return by_options(lambda x: tanh(x).sum(), lambda x: tanh(x[:1]).sum())


@probe("N6.other_dtype", "The recomputation saves float32 where the forward saved float64.")
def other_dtype():
    return by_options(tanh, lambda x: tanh(x.float()).double())


@probe("N6.other_device", "The recomputation saves a tensor on the meta device.")
def other_device():
    return {"with_early_stop": mismatch(tanh, lambda x: tanh(x.to("meta")))}


@probe("N6.other_strides", "The recomputation saves the same values with other strides.")
def other_strides():
    def gradient(body):
        x = ramp(3, 2)
        runs = []

        def both(x):
            runs.append(1)
            return body(x, len(runs) > 1)

        checkpointed("non_reentrant", both, x).sum().backward()
        return [x.grad]

    reference = gradient(lambda x, recomputation: torch.tanh(x))
    changed = lambda x, recomputation: torch.tanh(x.t().contiguous().t() if recomputation else x)
    return {"with_early_stop": judged(lambda: gradient(changed), reference)}


@probe("N6.freed_holder", "The recomputation differs in a tensor that the graph has let go of.")
def freed_holder():
    runs = []

    def body(x):
        runs.append(1)
        a = torch.tanh(x)
        b = torch.sigmoid(x if len(runs) < 3 else x[:1])
        return a, b, torch.tanh(x)

    x = variable(0.5, 1.0)
    a, b, c = checkpointed("non_reentrant", body, x)
    b.sum().backward()
    return {"later_backward_error": outcome(c.sum().backward)}


@probe(
    "N6.values",
    "The recomputation computes other values in the same shapes: a count from call to call."
)
def values():
    def situation(call, accident):
        x = variable(0.5, -1.0)
        runs = []

        def body(x):
            runs.append(1)
            return torch.tanh(x * (len(runs) if accident else 1))

        call(body, x).sum().backward()
        return [x.grad]

    return verdicts(situation)


@probe("N7.none", "determinism_check='none': a shape that the graph can still read.")
def unchecked():
    def gradient(**options):
        x = variable(0.5, 1.0)
        runs = []

        def body(x):
            runs.append(1)
            return torch.tanh(x if len(runs) == 1 else x.reshape(1, 2)).sum()

        checkpointed("non_reentrant", body, x, **options).backward()
        return [x.grad]

    def plain():
        x = variable(0.5, 1.0)
        torch.tanh(x).sum().backward()
        return [x.grad]

    reference = plain()
    return {
        "default": judged(gradient, reference),
        "none": judged(lambda: gradient(determinism_check="none"), reference),
    }


@probe(
    "N18.throws_in_recomputation",
    "A function that throws in its recomputation: state afterwards.",
)
def throws_in_recomputation():
    seen = {}
    for variant in VARIANTS:
        runs = []

        def body(x):
            runs.append(1)
            y = torch.tanh(torch.dropout(x, 0.5, True))
            if len(runs) == 2:
                raise ValueError("the function gave up")
            return torch.tanh(y)

        x = ramp(8)
        y = checkpointed(variant, body, x).sum()
        before = torch.get_rng_state()
        seen[f"{variant}_error"] = outcome(lambda: y.backward(retain_graph=True))
        seen[f"{variant}_random_state_kept"] = torch.equal(before, torch.get_rng_state())
        seen[f"{variant}_recording"] = torch.is_grad_enabled()
        with HookCounter() as hooks:
            torch.tanh(x)
        seen[f"{variant}_hooks_left"] = hooks.packs != 1
        seen[f"{variant}_second_attempt_error"] = outcome(y.backward)
        seen[f"{variant}_runs"] = len(runs)
    return seen


@probe("N18.throws_in_forward", "A function that throws in its forward: state afterwards.")
def throws_in_forward():
    seen = {}
    for variant in VARIANTS:

        def body(x):
            torch.dropout(x, 0.5, True)
            raise ValueError("the function gave up")

        x = variable(0.5, 1.0)
        before = torch.get_rng_state()
        seen[f"{variant}_error"] = outcome(lambda: checkpointed(variant, body, x))
        seen[f"{variant}_random_state_put_back"] = torch.equal(before, torch.get_rng_state())
        seen[f"{variant}_recording"] = torch.is_grad_enabled()
        with HookCounter() as hooks:
            torch.tanh(x)
        seen[f"{variant}_hooks_left"] = hooks.packs != 1
    return seen


@probe("N18.mismatch_then_again", "A recomputation that differs once: is the next backward right?")
def mismatch_then_again():
    runs = []
    x = variable(0.5, 1.0)

    def body(x):
        runs.append(1)
        return torch.tanh(x) if len(runs) != 2 else torch.tanh(x[:1])

    y = checkpointed("non_reentrant", body, x).sum()
    first = outcome(lambda: y.backward(retain_graph=True))
    second = outcome(y.backward)
    reference = variable(0.5, 1.0)
    torch.tanh(reference).sum().backward()
    return {
        "first_error": first,
        "second_error": second,
        "gradient_right": same_bits(x.grad, reference.grad),
    }


@probe(
    "N7.inner_gradient",
    "A function that differentiates inside and then saves another shape in the "
    "recomputation of the outer backward: is it noticed?",
)
def inner_gradient():
    def run(**options):
        runs = []
        x = variable(0.5, 1.0)

        def body(x):
            runs.append(1)
            torch.autograd.grad(torch.tanh(x).sum(), x)
            # The first two runs are the forward and the recomputation for the inner gradient.
            return torch.tanh(x if len(runs) < 3 else x.reshape(1, 2)).sum()

        y = checkpointed("non_reentrant", body, x, **options)
        return outcome(y.backward)

    return {"with_early_stop": run(), "without": run(early_stop=False)}

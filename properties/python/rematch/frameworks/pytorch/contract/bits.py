"""When gradients agree bit for bit. Sums and products only, so that every machine rounds alike."""

from functools import partial

from rematch.frameworks.pytorch.contract.probing import CALLS, constant, directly, probe, same_bits, variable


def rounding(count, seed):
    """Values whose sums round: multiples of 2^-40 of very different magnitude."""
    state = seed
    values = []
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((state >> 24) / 2**40 * 2.0 ** ((state >> 8) % 24 - 12) * (-1) ** i)
    return values


def gradient_of_shared(call, uses, before):
    w = variable(*rounding(64, 1))
    x = variable(*rounding(64, 2))
    if before:
        w.grad = constant(*rounding(64, 3))
    parts = []
    for k in range(uses):
        scale = constant(*rounding(64, 10 + k))
        parts.append(call(lambda x, s: x * w * s, x, scale))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    total.sum().backward()
    return w.grad, x.grad


def same_as_plain(run, *names):
    """Which of the gradients that `run(call, before)` returns have the bits of a plain run; before:
    whether .grad holds one already."""
    seen = {}
    for grad, before in (("empty", False), ("filled", True)):
        plain = run(directly, before)
        for variant, call in CALLS.items():
            for name, found, expected in zip(names, run(call, before), plain):
                seen[f"{variant}_{name}_with_{grad}_grad"] = same_bits(found, expected)
    return seen


def table(uses):
    run = lambda call, before: gradient_of_shared(call, uses, before)
    return same_as_plain(run, "weight_same", "input_same")


probe("B1.untied", "A weight used in one checkpoint: same bits as plain, .grad empty and filled?")(partial(table, 1))
for uses in (2, 3, 4):
    probe(f"B2.tied_{uses}", f"A weight used in {uses} checkpoints side by side: same bits?")(partial(table, uses))


@probe("B2.exact_data", "The same with three uses of small whole numbers, whose sums are exact.")
def exact_data():
    def run(call, before):
        w, x = variable(3.0, -2.0), variable(5.0, 7.0)
        if before:
            w.grad = constant(11.0, 13.0)
        total = sum(call(lambda x, s=s: x * w * s, x) for s in (1, 2, 4))
        total.sum().backward()
        return [w.grad]

    return same_as_plain(run, "same")


@probe("B2.within_one", "A weight used three times inside one checkpoint: same bits?")
def within_one():
    def run(call, before):
        w = variable(*rounding(64, 1))
        x = variable(*rounding(64, 2))
        if before:
            w.grad = constant(*rounding(64, 3))
        scales = [constant(*rounding(64, 10 + k)) for k in range(3)]
        call(lambda x: sum(x * w * s for s in scales), x).sum().backward()
        return [w.grad]

    return same_as_plain(run, "same")

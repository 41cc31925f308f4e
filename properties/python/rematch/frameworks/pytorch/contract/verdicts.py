"""What users do between forward and backward: plain against both variants.

Each verdict is "right", "silently wrong" or "error: CATEGORY", judged by the gradients of a plain
run to which nothing happened.
"""

import random
from functools import partial

import torch

from rematch.frameworks.pytorch.contract.probing import *

tanh = torch.tanh


GIVE = {
    "positional": (
        "An input, given by position, changed in place after the forward.",
        lambda call, x, c: call(body, x, c),
    ),
    "keyword": ("The same with the input given by keyword.", lambda call, x, c: call(body, x, c=c)),
    "nested": ("The same with the input inside a list.", lambda call, x, c: call(lambda x, cs: body(x, *cs), x, [c])),
    "captured": (
        "The same with a tensor that the function captured.",
        lambda call, x, c: call(lambda x: body(x, c), x),
    ),
}


def body(x, c):
    return tanh(x) * c


def input_changed(how):
    """Verdicts where a constant, which the function is given in this way, changes after the forward."""

    def situation(call, accident):
        x, c = variable(0.5, -1.0), constant(2.0, 3.0)
        y = GIVE[how][1](call, x, c)
        if accident:
            c.mul_(5)
        y.sum().backward()
        return [x.grad]

    seen = verdicts(situation)
    if how == "keyword":
        # The reentrant variant does not accept keywords to begin with.
        del seen["reentrant"]
    return seen


for how, (words, _) in GIVE.items():
    probe(f"N9.{how}_changed", words)(partial(input_changed, how))


WAYS = {
    "position": lambda x, c: checkpoint(body, x, c),
    "keyword": lambda x, c: checkpoint(body, x=x, c=c),
    "list": lambda x, c: checkpoint(lambda xs: body(*xs), [x, c]),
    "captured": lambda x, c: checkpoint(lambda: body(x, c)),
}


@probe("N9.hooks", "What surrounding hooks see of inputs by position, by keyword, in a list, captured.")
def hooks():
    seen = {}
    for way, make in WAYS.items():
        x, c = variable(0.5), constant(2.0)
        with HookCounter() as counter:
            make(x, c)
        seen[way] = counter.packs
    return seen


@probe("N9.kept", "Whether a frozen input is kept until backward, by the way in which it is given.")
def kept():
    seen = {}
    for way, make in WAYS.items():
        c = constant(2.0)
        storage = storage_of(c)
        y = make(variable(0.5), c)
        del c
        seen[way] = y is not None and storage() is not None
    return seen


def weight_changed(change):
    def situation(call, accident):
        x, w = variable(0.5, -1.0), variable(2.0, 3.0)
        y = call(lambda x: tanh(x * w) * w, x)
        if accident:
            change(w)
        y.sum().backward()
        return [x.grad, w.grad]

    return verdicts(situation)


@torch.no_grad()
def in_place(w):
    w.sub_(1)


def by_data(w):
    w.data.sub_(1)


def replaced(w):
    w.data = w.data - 1


for what, words, change in (
    ("changed", "A weight changed in place between forward and backward.", in_place),
    ("data_changed", "The same through .data, which hides from the version counter.", by_data),
    ("replaced", "The same by giving .data another tensor.", replaced),
):
    probe(f"N10.weight_{what}", words)(partial(weight_changed, change))


@probe("N10.buffer_changed", "A frozen buffer changed in place between forward and backward.", by=verdicts)
def buffer_changed(call, accident):
    x, scale = variable(0.5, -1.0), constant(2.0, 3.0)
    y = call(lambda x: tanh(x * scale), x)
    if accident:
        scale.mul_(2)
    y.sum().backward()
    return [x.grad]


@probe("N10.optimizer_step", "Two forwards; backward and step for the first, then the second's.", by=verdicts)
def optimizer_step(call, accident):
    x, w = variable(0.5, -1.0), variable(2.0, 3.0)
    body = lambda x: tanh(x * w) * w
    first, second = call(body, x).sum(), call(body, x * 2).sum()
    first.backward()
    if accident:
        torch.optim.SGD([w], lr=0.5).step()
    w.grad = None
    second.backward()
    return [w.grad]


@probe("N10.weight_changed_in_backward", "A weight changed during backward, by another's hook.", by=verdicts)
def weight_changed_in_backward(call, accident):
    x, early, late = variable(0.5, -1.0), variable(2.0, 3.0), variable(5.0, 7.0)

    def step(_):
        # The gradient of `late` is there before the node that reads `early` runs.
        with torch.no_grad():
            early.mul_(2)

    if accident:
        late.register_hook(step)
    call(lambda x: tanh(x * early) * late, x).sum().backward()
    return [x.grad, early.grad, late.grad]


@probe("N11.own_argument_changed", "A function that scales its argument in place before using it.", by=verdicts)
def own_argument_changed(call, accident):
    x, m = variable(0.5, -1.0), variable(2.0, 3.0)
    h = m * 1

    def body(x, h):
        h = h.mul_(3) if accident else h * 3
        return tanh(x * h)

    call(body, x, h).sum().backward()
    return [x.grad, m.grad]


@probe("N11.own_constant_changed", "The same with an argument that is frozen.", by=verdicts)
def own_constant_changed(call, accident):
    x, m = variable(0.5, -1.0), constant(2.0, 3.0)

    def body(x, m):
        m = m.mul_(3) if accident else m * 3
        return tanh(x * m)

    call(body, x, m).sum().backward()
    return [x.grad]


@probe("N12.output_changed", "An output changed in place after the checkpoint.", by=verdicts)
def output_changed(call, accident):
    x = variable(0.5, -1.0)
    y = call(tanh, x)
    y = y.mul_(2) if accident else y * 2
    y.sum().backward()
    return [x.grad]


def dropout_between(*kinds):
    def situation(call, accident):
        model = torch.nn.Sequential(*(getattr(torch.nn, kind)() for kind in kinds))
        x = ramp(64)
        y = call(model, x)
        if accident:
            model.eval()
        y.sum().backward()
        return [x.grad]

    return verdicts(situation)


probe("V.eval_between_dropout", "eval() between forward and backward of a lone dropout.")(
    partial(dropout_between, "Dropout")
)
probe("V.eval_between_dropout_then_tanh", "The same with a tanh after the dropout.")(
    partial(dropout_between, "Dropout", "Tanh")
)


@probe("V.eval_between_batch_norm", "eval() between forward and backward of a BatchNorm.", by=verdicts)
def eval_between_batch_norm(call, accident):
    model = torch.nn.BatchNorm1d(3)
    x, scale = ramp(5, 3), ramp(5, 3, requires_grad=False)
    y = call(model, x)
    if accident:
        model.eval()
    (y * scale).sum().backward()
    return [x.grad]


@probe("V.batch_norm_statistics", "Updates of a BatchNorm's statistics in one step.")
def batch_norm_statistics():
    def updates(call):
        model = torch.nn.BatchNorm1d(3)
        call(model, ramp(5, 3)).sum().backward()
        return int(model.num_batches_tracked)

    return {
        "plain": updates(directly),
        "reentrant": updates(reentrant),
        "non_reentrant": updates(checkpoint),
        "non_reentrant_without_early_stop": updates(without_early_stop),
        "non_reentrant_with_an_op_after": updates(lambda f, *a: checkpoint(lambda x: tanh(f(x)), *a)),
    }


FLAGGED = {
    "same_shapes": ("another op, saving the same shapes", tanh, lambda x: tanh(x * 2)),
    "other_shapes": (
        "tensors of other shapes are saved",
        lambda x: tanh(x).sum(),
        lambda x: tanh(torch.cat([x, x])).sum(),
    ),
    "more_saved": ("more tensors are saved", tanh, lambda x: tanh(tanh(x))),
    "fewer_saved": ("fewer tensors are saved", lambda x: tanh(tanh(x)), tanh),
}


def flag_between(name):
    _, on, off = FLAGGED[name]

    def situation(call, accident):
        flag = [True]
        x = variable(0.5, -1.0)
        y = call(lambda x: on(x) if flag[0] else off(x), x)
        if accident:
            flag[0] = False
        y.sum().backward()
        return [x.grad]

    return verdicts(situation)


for name, (words, *_) in FLAGGED.items():
    probe(f"V.flag_{name}", f"A user's flag changed between: {words}.")(partial(flag_between, name))


@probe("V.python_random", "A branch taken by Python's random, saving the same shapes.", by=verdicts)
def python_random(call, accident):
    # The second draw goes the other way than the first.
    random.seed(next(s for s in range(99) if crosses(s)))
    x = variable(0.5, -1.0)

    def body(x):
        return tanh(x * 2) if accident and random.random() < 0.5 else tanh(x)

    call(body, x).sum().backward()
    return [x.grad]


def crosses(seed):
    """Whether, after `seed`, the first draw leads to the plain branch and the second to the other one."""
    draws = random.Random(seed)
    return draws.random() >= 0.5 > draws.random()


@probe("V.no_preserved_random_state", "A dropout whose random state is not preserved.", by=verdicts)
def no_preserved_random_state(call, accident):
    x = ramp(64)
    call(lambda x: tanh(torch.dropout(x, 0.5, True)), x, preserve_rng_state=not accident).sum().backward()
    return [x.grad]


@probe("V.nothing_happens", "None of all that.", by=verdicts)
def nothing_happens(call, accident):
    x, w = variable(0.5, -1.0), variable(2.0, 3.0)
    call(lambda x: tanh(torch.dropout(x * w, 0.5, True)), x).sum().backward()
    return [x.grad, w.grad]

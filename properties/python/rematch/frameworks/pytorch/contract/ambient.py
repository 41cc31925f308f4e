"""State that code depends on without being handed it: what a recomputation restores."""

import contextlib
import contextvars
import random
import threading
from contextlib import nullcontext
from functools import partial

import torch
from torch.overrides import TorchFunctionMode

from rematch.frameworks.pytorch.contract.probing import *

tanh = torch.tanh


def dropout(x):
    return torch.dropout(x, 0.5, True)


def steps(preserves):
    """Whether a step with dropout is as the plain one, where checkpoint() preserves random states or does not."""

    def run(call):
        seed(7)
        x = ramp(8, 8)
        y = call(lambda x: tanh(dropout(x)), x).sum()
        before = torch.get_rng_state()
        y.backward()
        kept = torch.equal(before, torch.get_rng_state())
        return x.grad, kept, torch.rand(4)

    def facts(call):
        gradient, kept, draw = run(partial(call, preserve_rng_state=preserves))
        right = {"gradient_right": same_bits(gradient, plain[0]), "next_draw_right": same_bits(draw, plain[2])}
        return right | {"state_kept_by_backward": kept}

    plain = run(directly)
    return in_both(facts)


probe("AM1.dropout", "Dropout in a checkpoint: mask, random state after backward, the next draw.")(partial(steps, True))
probe("AM1.not_preserved", "The same with preserve_rng_state=False.")(partial(steps, False))


def begins(generator, between, call):
    """Which state of a generator the recomputation of a function with one draw begins in, and which one a backward
    leaves."""
    states = []

    def body(x):
        states.append(generator.get_state())
        return tanh(x * torch.rand(8, generator=generator))

    torch.rand(3)
    y = call(body, ramp(8)).sum()
    between()
    left = generator.get_state()
    y.backward()
    return {
        "recomputation_begins_at_entry": torch.equal(*states),
        "state_kept_by_backward": torch.equal(left, generator.get_state()),
    }


def draws_more():
    torch.rand(5)


@probe("AM1.state_at_entry", "Draws before the region and after it: where the recomputation begins.", by=in_both)
def state_at_entry(call):
    return begins(torch.default_generator, draws_more, call)


@probe("AM1.reseeded", "Seeding between forward and backward.", by=in_both)
def reseeded(call):
    return begins(torch.default_generator, lambda: seed(99), call)


@probe("AM1.own_generator", "A draw from a generator of the user's own.", by=in_both)
def own_generator(call):
    return begins(torch.Generator().manual_seed(3), draws_more, call)


@probe(
    "AM1.several_regions", "Three checkpoints with dropout in turn: gradient and random state.", by=gradient_and_state
)
def several_regions(call):
    x = h = ramp(4, 8)
    for _ in range(3):
        h = call(lambda x: tanh(dropout(x)), h)
    h.sum().backward()
    return x.grad


@probe("AM2.python_random", "Python's random inside the function: state at entry, state afterwards.", by=in_both)
def python_random(call):
    draws = []

    def body(x):
        draws.append(random.random())
        return tanh(x)

    y = call(body, variable(0.5)).sum()
    left = random.getstate()
    y.backward()
    return {"same_draw_in_recomputation": draws[0] == draws[1], "state_kept_by_backward": left == random.getstate()}


def whose(read, forward, backward):
    """Whose value of a state a recomputation sees: the forward's or the backward's, which differ.

    `forward` and `backward` are contexts in which the forward and the backward run.
    """
    seen = {}
    for variant in VARIANTS:
        values = []

        def body(x):
            values.append(read())
            return tanh(x)

        with forward():
            y = checkpointed(variant, body, variable(0.5)).sum()
        with backward():
            y.backward()
            outside = read()
        assert values[0] != outside
        told = {values[0]: "the forward's", outside: "the backward's"}
        seen[variant] = told.get(values[1], "another")
    return seen


@contextlib.contextmanager
def setting(get, put, value):
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


@probe("AM3.grad_mode", "Recording in the recomputation of a backward that is called with recording off.", by=in_both)
def grad_mode(call):
    modes = []

    def body(x):
        modes.append(torch.is_grad_enabled())
        return tanh(x)

    y = call(body, variable(0.5)).sum()
    with torch.no_grad():
        y.backward()
    return {"modes": modes}


@probe("AM5.device_context", "torch.device('meta') around the forward only: whose the recomputation sees.")
def device_context():
    return whose(lambda: torch.empty(1).device.type, lambda: torch.device("meta"), nullcontext)


@probe("AM5.device_context_of_backward", "The same around the backward only.")
def device_context_of_backward():
    return whose(lambda: torch.empty(1).device.type, nullcontext, lambda: torch.device("meta"))


@probe("AM5.nested_devices", "Devices of forward, recomputation, and around both, by scopes.")
def nested_devices():
    now = lambda: torch.empty(1).device.type
    seen = {}
    for outer, inner in (("meta", "cpu"), ("cpu", "meta"), ("meta", "meta")):
        found = []

        def body(x):
            found.append(now())
            return tanh(x)

        x = variable(0.5)
        with torch.device(outer), torch.device(inner):
            y = checkpoint(body, x)
        left = [now()]
        with torch.device("meta" if inner == "cpu" else "cpu"):
            torch.autograd.grad(y, x, torch.ones(1, device="cpu"))
            left.append(now())
        seen[f"{inner}_within_{outer}"] = [found, [*left, now()]]
    return seen


class Doubles(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.zeros:
            return torch.ones(1)
        return func(*args, **(kwargs or {}))


@probe("AM5.function_mode", "Another mode over torch's functions around the forward only.")
def function_mode():
    return whose(lambda: torch.zeros(1).item(), Doubles, nullcontext)


cuda = torch.backends.cuda
dtype = (lambda: torch.empty(1).dtype), torch.set_default_dtype
deterministic = torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
precision = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
SETTINGS = {
    "default_dtype": ("default dtype of new tensors", *dtype, torch.float32),
    "deterministic_algorithms": ("switch for deterministic algorithms", *deterministic, True),
    "matmul_precision": ("precision of float32 products (TF32)", *precision, "medium"),
    "attention_backend": ("choice of attention kernels", cuda.math_sdp_enabled, cuda.enable_math_sdp, False),
}


def changed_in_between(name):
    _, get, put, value = SETTINGS[name]
    return whose(get, nullcontext, lambda: setting(get, put, value))


for name, (words, *_) in SETTINGS.items():
    probe(f"AM6.{name}", f"The {words}, changed in between.")(partial(changed_in_between, name))


@probe("AM6.training", "module.training, changed in between.")
def training():
    seen = {}
    for name, backward in (("eval_between", False), ("train_between", True)):
        for variant in VARIANTS:
            model = torch.nn.Identity().train(not backward)
            values = []

            def body(x):
                values.append(model.training)
                return tanh(x)

            y = checkpointed(variant, body, variable(0.5)).sum()
            model.train(backward)
            y.backward()
            seen[f"{name}_{variant}"] = "the forward's" if values[0] == values[1] else "the backward's"
    return seen


@probe("AM6.module_hook", "A forward hook taken off the module before backward: runs of the hook.", by=in_both)
def module_hook(call):
    model = torch.nn.Tanh()
    runs = []
    handle = model.register_forward_hook(lambda *_: runs.append(1))
    y = call(model, variable(0.5)).sum()
    handle.remove()
    y.backward()
    return {"hook_runs": len(runs)}


@probe("AM6.global_variable", "A global of the user's, changed in between.")
def global_variable():
    box = [1]
    return whose(lambda: box[0], nullcontext, lambda: setting(lambda: box[0], lambda v: box.__setitem__(0, v), 2))


@probe("AM6.context_variable", "A context variable and a thread-local, set around the forward only.")
def context_variable():
    variable_ = contextvars.ContextVar("probe", default="unset")

    @contextlib.contextmanager
    def forward():
        token = variable_.set("set")
        yield
        variable_.reset(token)

    local = threading.local()
    put = lambda value: setattr(local, "value", value)
    get = lambda: getattr(local, "value", 0)
    seen = {f"context_{k}": v for k, v in whose(variable_.get, forward, nullcontext).items()}
    threads = whose(get, lambda: setting(get, put, 1), nullcontext)
    return seen | {f"thread_local_{k}": v for k, v in threads.items()}


@probe(
    "AM6.saved_tensor_hooks", "Hooks on saved tensors around the forward: do they see the recomputation?", by=in_both
)
def saved_tensor_hooks(call):
    with HookCounter() as hooks:
        y = call(lambda x: tanh(tanh(x)), variable(0.5)).sum()
    packs = hooks.packs
    y.backward()
    return {"packs_in_forward": packs, "packs_in_recomputation": hooks.packs - packs}

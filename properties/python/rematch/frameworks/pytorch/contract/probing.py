"""Probes: small functions that try one thing each and return the facts that they saw.

What every probe needs: the registry, categories of errors and warnings, counters, verdicts.
"""

import contextlib
import functools
import gc
import random
import re
import warnings
import weakref

import torch
import torch.utils.checkpoint as C
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from rematch.frameworks.pytorch.trial import left_behind, put_back

VARIANTS = {"reentrant": True, "non_reentrant": False}

# Errors by category: what PyTorch says. An excerpt that two releases word alike.
ERRORS = {
    "changed in place": "has been modified by an inplace operation",
    "leaf written in place": "a leaf Variable that requires grad is being used in an in-place",
    "walked twice": "Trying to backward through the graph a second time",
    "root requires no grad": "does not require grad and does not have a grad_fn",
    "not used in the graph": "appears to not have been used in the graph",
    "partial backward": "incompatible with .grad() or passing an `inputs` parameter",
    "no output requires grad": "none of output has requires_grad=True",
    "fewer saved": "A different number of tensors was saved",
    "more saved": "trying to save more tensors during recomputation",
    "other metadata": "different metadata than during the forward pass",
    "unpacked twice": "Unpack is being triggered for a tensor that was already unpacked once",
    "overlapping backwards": "Performing two backward calls that overlap",
    "nested groups": "GraphExecGroup contexts cannot be nested",
    "keyword arguments": "Unexpected keyword arguments",
    "non-reentrant only": "is only supported when use_reentrant=False",
    "unknown check": "determinism_check should be one of",
    "debug with contexts": "debug=True is incompatible with non-default context_fn",
    "operators differ": "Detected non-determinism while running activation checkpointing",
    "exception swallowed": "suppressed an exception raised during the checkpointed forward",
    "no step": "range() arg 3 must not be zero",
    "division by zero": "division",
    "too many arguments": "got multiple values for argument",
    "not a policy": "policy_fn_or_list must be either a function or a list of ops",
    "consumed": "Trying to backward an extra time",
    "not in storage": "encountered during backward but not found in storage",
    "cached tensor changed": "cached during selective activation checkpoint has been mutated",
    "initialized late": "device state was initialized in the forward pass",
    "the function's own": "the function gave up",
}
# The last match wins: an overlap is told inside the text of a second unpacking.
LATER_WINS = ("overlapping backwards", "operators differ")

WARNINGS = {
    "frozen": "None of the inputs have requires_grad=True",
    "variant not chosen": "use_reentrant parameter should be passed explicitly",
    "hooks bypassed": "A saved_tensors_hooks context (e.g. save_on_cpu) is active",
}

PROBES = {}
errors_seen = {}


class Probe:
    """A function and what it tries. `promised`: facts that the documentation promises and that the
    release of the record does not keep."""

    def __init__(self, tried, function, promised):
        self.tried, self.function, self.promised = tried, function, promised


def probe(identifier, tried, by=None, **promised):
    """Registers a function that returns the facts seen; with `by`, such as verdicts(), a function that `by` takes.
    `identifier` begins with its rule."""

    def register(function):
        assert identifier not in PROBES, identifier
        PROBES[identifier] = Probe(tried, functools.partial(by, function) if by else function, promised)
        return function

    return register


def category(error):
    text = str(error)
    found = [name for name, excerpt in ERRORS.items() if excerpt in text]
    chosen = next((name for name in LATER_WINS if name in found), found[0] if found else None)
    if chosen is None:
        if isinstance(error, (AttributeError, TypeError)):
            # What is tried is not there in this release.
            raise error
        first = text.strip().splitlines()[0] if text.strip() else ""
        return f"unclassified {type(error).__name__}: " + re.sub(r"0x[0-9a-f]+|\d+", "#", first)
    errors_seen[chosen] = {"class": type(error).__name__, "says": ERRORS[chosen]}
    return chosen


def outcome(action):
    """ "no error" when `action` ends well, otherwise the category of its error."""
    try:
        action()
    except Exception as error:  # noqa: BLE001
        return category(error)
    return "no error"


@contextlib.contextmanager
def warned():
    """Collects the categories of the warnings that are given inside."""
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield seen
    for warning in caught:
        text = str(warning.message)
        for name, excerpt in WARNINGS.items():
            if excerpt in text:
                seen.append(name)


def seed(value):
    """Seeds the CPU alone: torch.manual_seed() notes its caller, for devices to come."""
    torch.default_generator.manual_seed(value)


@contextlib.contextmanager
def same_state():
    """Sets a fixed state, and restores the state before afterwards.

    The garbage collector is off, because probes report what stays alive.
    """
    before = torch.get_rng_state(), random.getstate(), torch.get_default_dtype()
    deterministic, collects = torch.are_deterministic_algorithms_enabled(), gc.isenabled()
    seed(7)
    random.seed(7)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(False)
    torch.clear_autocast_cache()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collects:
            gc.enable()
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        torch.set_default_dtype(before[2])
        torch.use_deterministic_algorithms(deterministic)


def facts_of(function):
    """What a probe sees, and what it leaves behind of PyTorch's settings."""
    with same_state():
        try:
            seen = function()
        except Exception as error:  # noqa: BLE001
            # Another release does not have what is tried.
            seen = {"not_available": f"{type(error).__name__}: {error}"}
        if changed := left_behind():
            seen["left_behind"] = changed
            put_back()
    return seen


def variable(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def constant(*values):
    return torch.tensor(values, dtype=torch.float64)


def ramp(*shape, requires_grad=True):
    """Small multiples of 1/8, off zero."""
    count = 1
    for extent in shape:
        count *= extent
    values = [((5 * i) % 13 - 6.5) / 8 for i in range(count)]
    return torch.tensor(values).reshape(shape).requires_grad_(requires_grad)


def checkpointed(variant, function, *args, **options):
    return C.checkpoint(function, *args, use_reentrant=VARIANTS[variant], **options)


def directly(function, *args, **options):
    """The plain call in place of a checkpoint: options of checkpoint() are not the function's."""
    for name in ("preserve_rng_state", "early_stop", "determinism_check"):
        options.pop(name, None)
    return function(*args, **options)


def reentrant(function, *args, **options):
    return checkpointed("reentrant", function, *args, **options)


def checkpoint(function, *args, **options):
    """The non-reentrant variant."""
    return checkpointed("non_reentrant", function, *args, **options)


def without_early_stop(function, *args):
    return checkpoint(function, *args, early_stop=False)


CALLS = {"reentrant": reentrant, "non_reentrant": checkpoint}


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function = function
        self.runs = 0

    def __call__(self, *args, **kwargs):
        self.runs += 1
        return self.function(*args, **kwargs)


class InTurn(Counted):
    """Calls the first function in its first call, the second in its second, and so on; then always the last one."""

    def __init__(self, *functions):
        super().__init__(lambda x: functions[min(self.runs, len(functions)) - 1](x))


class Entered(contextlib.nullcontext):
    """A context that notes when it is entered."""

    def __init__(self, entered, name):
        super().__init__()
        self.entered, self.name = entered, name

    def __enter__(self):
        self.entered.append(self.name)


def runs_of_backwards(call, count):
    """Runs of a function after each of some backwards over its graph, which is retained."""
    body = Counted(torch.tanh)
    y = call(body, variable(0.5)).sum()
    runs = []
    for _ in range(count):
        y.backward(retain_graph=True)
        runs.append(body.runs)
    return {"runs": runs}


def storage_of(tensor):
    """A weak reference: that of a tensor itself dies with its Python object."""
    return weakref.ref(tensor.untyped_storage())


def alive(storages):
    return sum(storage() is not None for storage in storages)


class HookCounter(saved_tensors_hooks):
    """Surrounding hooks that count what passes through them."""

    def __init__(self):
        self.packs = 0
        self.unpacks = 0

        def pack(tensor):
            self.packs += 1
            return tensor

        def unpack(tensor):
            self.unpacks += 1
            return tensor

        super().__init__(pack, unpack)

    def __enter__(self):
        super().__enter__()
        return self


class OpCounter(TorchDispatchMode):
    """Counts kernels by the name of their op."""

    def __init__(self):
        super().__init__()
        self.counts = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def same_bits(a, b):
    """Whether two gradients are the same: both absent, or equal bit for bit."""
    if a is None or b is None:
        return a is b
    bits = lambda t: t.detach().view(torch.int64) if t.dtype == torch.float64 else t.detach()
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def judged(run, reference):
    """The verdict over the gradients that `run` returns, or over the error that it raises."""
    try:
        gradients = run()
    except Exception as error:  # noqa: BLE001
        return "error: " + category(error)
    right = len(gradients) == len(reference) and all(map(same_bits, gradients, reference))
    return "right" if right else "silently wrong"


def against_plain(run):
    """Compares the gradients of a checkpointed and a plain run. `run(call)` returns its counts and its gradients."""
    runs, gradients = run(checkpoint)
    _, reference = run(directly)
    return {"verdict": judged(lambda: gradients, reference), "runs": runs}


def gradient_and_state(run):
    """Whether `run(call)` gives the gradient and leaves the random state that a plain run does."""

    def both(call):
        seed(7)
        return run(call), torch.get_rng_state()

    gradient, state = both(directly)
    seen = {}
    for variant, call in CALLS.items():
        found = both(call)
        seen[f"{variant}_gradient_right"] = same_bits(found[0], gradient)
        seen[f"{variant}_random_state_right"] = torch.equal(found[1], state)
    return seen


def verdicts(situation):
    """Verdicts over `situation(call, accident)` plain and in both variants.

    It builds a model, runs it by call(function, *args, **options), lets the accident happen if it
    is asked to, goes backward and returns gradients. The reference is a plain run without accident.
    """

    def fresh(call, accident):
        seed(7)
        random.seed(7)
        return situation(call, accident)

    reference = fresh(directly, False)
    seen = {"plain": judged(lambda: fresh(directly, True), reference)}
    for name, call in CALLS.items():
        clean = judged(lambda: fresh(call, False), reference)
        verdict = judged(lambda: fresh(call, True), reference)
        # What does not even work without the accident says nothing about it.
        seen[name] = verdict if clean == "right" else f"without the accident, {clean}"
    return seen


def said(action, *words):
    """Whether the error of `action` has these words in that order; otherwise its text."""
    try:
        action()
    except Exception as error:  # noqa: BLE001
        rest = text = str(error)
        for word in words:
            _, found, rest = rest.partition(word)
            if not found:
                return f"{type(error).__name__}: {text}"
        return True
    return "no error"


def alike(run):
    """Verdicts over the gradients of `run(call)` in both variants."""
    reference = run(directly)
    return {name: judged(lambda: run(call), reference) for name, call in CALLS.items()}


def in_both(run):
    """The facts that `run(call)` returns in both variants, by "variant_fact"."""
    return {f"{variant}_{fact}": value for variant, facts in of_both(run).items() for fact, value in facts.items()}


def of_both(run):
    """What `run(call)` returns in both variants."""
    return {variant: run(call) for variant, call in CALLS.items()}


def plain_and_both(run):
    return {"plain": run(directly)} | of_both(run)

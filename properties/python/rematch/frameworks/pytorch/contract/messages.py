"""Errors of checkpoint(): what they say, and what debug=True adds and leaves alone."""

import re

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import *


def text_of(forward, recomputation, **options):
    """The CheckpointError of a recomputation that differs, as text."""
    y = checkpoint(InTurn(forward, recomputation), variable(0.3, -0.7, 1.1), **options)
    try:
        y.sum().backward()
    except C.CheckpointError as error:
        return str(error)
    return "no error"


def through(change):
    """Saves its input, what `change` makes of that, and the input once more."""
    return lambda x: x.sin().sum() + change(x * 2).cos().sum() + (x * 1).exp().sin().sum()


@probe(
    "N6.message",
    "Errors of recomputations that save other shapes, dtypes, numbers of tensors: the places they "
    "name, with the metadata of both sides, and their advice.",
)
def message():
    seen = {}
    same = lambda t: t
    for name, change, options in [
        ("dtype", lambda t: t.float(), {}),
        ("shape", lambda t: t[:2], {"determinism_check": "default"}),
        ("rank", lambda t: t[None], {"early_stop": False}),
    ]:
        text = text_of(through(same), through(change), **options)
        x = variable(0.3, -0.7, 1.1)
        both = [
            f"{side} metadata: { ({'shape': t.shape, 'dtype': t.dtype, 'device': t.device}) }"
            for side, t in (("saved", x), ("recomputed", change(x)))
        ]
        seen[f"{name}_positions"] = re.findall(r"tensor at position (\d+)", text)
        seen[f"{name}_metadata"] = [words in text for words in both]
        seen[f"{name}_advice"] = "set_checkpoint_debug_enabled(True)" in text
    three = lambda x: x.sin().cos().tanh()
    text = text_of(three, lambda x: three(x.float()))
    seen["three_positions"] = re.findall(r"tensor at position (\d+)", text)
    for name, recomputation in (("one_of_three", torch.sin), ("none", lambda x: x + 1)):
        for stop in (True, False):
            text = text_of(three, recomputation, early_stop=stop)
            counts = re.findall(r"during (?:forward|recomputation): (\d+)", text)
            seen[f"{name}_{'stopped' if stop else 'whole'}_counts"] = counts
            seen[f"{name}_{'stopped' if stop else 'whole'}_advice"] = "debug=True" in text
    seen["more_advice"] = "debug=True" in text_of(torch.sin, three, early_stop=False)
    return seen


@probe("N7.recomputed_tensors", "The gradient by tensors of another shape, which nothing checks.")
def recomputed_tensors():
    def gradient(stop):
        x = variable(0.5, 0.5, 0.5)
        times = lambda *values: lambda x: (x + 1) * torch.tensor(values)
        body = InTurn(times(1.0, 2.0, 3.0), lambda x: times(4.0, 5.0, 6.0)(x)[None])
        checkpoint(body, x, determinism_check="none", early_stop=stop).sum().backward()
        return x.grad.flatten().tolist()

    # The recomputation multiplies by a tensor with one more dimension: its last op is a view.
    return {"with_early_stop": gradient(True), "without": gradient(False)}


@probe("N8.changes_nothing", "Gradients with debug=True and under its scope.")
def changes_nothing():
    def gradient(call):
        seed(5)
        x = variable(0.3, -0.7, 1.1)
        call(lambda x: torch.dropout(x.sin(), 0.5, True) * x, x).sum().backward()
        return [x.grad]

    def scoped(function, *args):
        with C.set_checkpoint_debug_enabled(True):
            return checkpoint(function, *args)

    reference = gradient(directly)
    option = lambda *args: checkpoint(*args, debug=True)
    return {"option": judged(lambda: gradient(option), reference), "scope": judged(lambda: gradient(scoped), reference)}


@probe("N8.two_backwards", "debug=True and two backwards over a retained graph.", verdict="right")
def two_backwards():
    def gradient(call, **options):
        x = variable(0.3, -0.7)
        y = call(torch.sin, x, **options).sum()
        y.backward(retain_graph=True)
        first = x.grad.clone()
        x.grad = None
        y.backward()
        return [first, x.grad]

    reference = gradient(directly)
    try:
        return {"verdict": judged(lambda: gradient(checkpoint, debug=True), reference)}
    except AttributeError as error:
        return {"verdict": f"AttributeError: {error}"}


def in_forward(x):
    return x.sin().exp().cos()


def in_recomputation(x):
    return x.tanh().erf()


@probe("N8.report", "The four parts of a report with debug=True: operators, their order, frames.")
def report():
    y = checkpoint(InTurn(in_forward, in_recomputation), variable(0.3, -0.7), debug=True)
    try:
        y.sum().backward()
    except C.CheckpointError as error:
        told, cause, text = category(error), category(error.__cause__), str(error)
    parts = text.split("+----")
    if len(parts) != 5:
        return {"parts": len(parts) - 1}
    _, of_forward, of_recomputation, lists, _ = parts
    shown = lambda part: re.findall(r"aten\.(\w+)", part)
    frames = [line for line in of_forward.splitlines() if "in_forward" in line]
    return {
        "parts": 4,
        "operators_of_the_forward": list(dict.fromkeys(shown(of_forward))),
        "numbers_of_the_forward": re.findall(r"(\d of \d) in original", of_forward),
        "operators_of_the_recomputation": list(dict.fromkeys(shown(of_recomputation))),
        "numbers_of_the_recomputation": re.findall(r"(\d of \d) in recompute", of_recomputation),
        "functions": ["in_forward" in of_forward, "in_recomputation" in of_recomputation],
        "files_shown": bool(frames) and all(__file__ in line for line in frames),
        "frames_of_its_own_logging": "__torch_dispatch__" in of_forward,
        "lists": shown(lists.partition("during the original forward:")[2]),
        "advice": "debug=True" in text,
        "error": told,
        "cause": cause,
    }


@probe("N8.scopes", "set_checkpoint_debug_enabled() and the option: are operators in the error?")
def scopes():
    def shown(scopes, **options):
        if not scopes:
            return lambda: text_of(lambda x: x.sin().cos(), torch.sin, **options)
        inner = shown(scopes[1:], **options)

        def run():
            with C.set_checkpoint_debug_enabled(scopes[0]):
                return inner()

        return run

    told = lambda *scopes, **options: "executed during" in shown(scopes, **options)()
    seen = {"without": told(), "option": told(debug=True)}
    for name, given in [
        ("on", [True]),
        ("off", [False]),
        ("unset", [None]),
        ("unset_in_on", [True, None]),
        ("on_in_off", [False, True]),
    ]:
        seen[f"scope_{name}"] = [told(*given), told(*given, debug=True)]
    try:
        with C.set_checkpoint_debug_enabled(True):
            with C.set_checkpoint_debug_enabled(False):
                pass
            seen["after_an_inner_scope"] = told()
            raise KeyError
    except KeyError:
        seen["after_an_exception"] = told()
    return seen


@probe(
    "N18.as_it_is",
    "An error of the function in the recomputation, in the forward, and an interrupt: does it come "
    "out as it is, and does a retry give the gradient?",
)
def as_it_is():
    seen = {}
    for variant, call in CALLS.items():

        def attempt(fails, error):
            def body(x):
                mask = torch.rand(3)
                if fails.pop(0):
                    raise error
                return (x * mask).sin()

            x = variable(0.3, -0.7, 1.1)
            seed(3)
            y = call(body, x).sum()
            try:
                y.backward(retain_graph=True)
            except KeyError as came:
                retried = x.grad is None
                y.backward()
                seed(3)
                plain = variable(0.3, -0.7, 1.1)
                (plain * torch.rand(3)).sin().sum().backward()
                return [came is error, retried, same_bits(x.grad, plain.grad)]
            return []

        seen[f"{variant}_in_recomputation"] = attempt([False, True, False], KeyError("its own"))
        for name, error in (("error", KeyError("its own")), ("interrupt", KeyboardInterrupt())):
            try:
                attempt([True], error)
                seen[f"{variant}_{name}_in_forward"] = "no error"
            except BaseException as came:  # noqa: BLE001
                seen[f"{variant}_{name}_in_forward"] = came is error
    return seen


@probe("N18.through_contexts", "What a forward context sees of an error, and what a caller does.")
def through_contexts():
    seen = {}
    for name, error in (("error", KeyError("its own")), ("interrupt", KeyboardInterrupt())):
        for suppresses in (False, True):
            log = []

            class Context:
                def __enter__(self):
                    log.append("entered")

                def __exit__(self, kind, *_):
                    log.append(kind.__name__)
                    return suppresses

            def fails(x):
                x.sin()
                raise error

            contexts = lambda: (Context(), Context())
            key = f"{name}_{'suppressed' if suppresses else 'passed'}"
            try:
                checkpoint(fails, variable(0.5), context_fn=contexts)
                seen[key] = "no error"
            except RuntimeError as came:
                seen[key] = category(came)
            except (KeyError, KeyboardInterrupt) as came:
                seen[key] = came is error
            seen[f"{key}_seen"] = log
    return seen

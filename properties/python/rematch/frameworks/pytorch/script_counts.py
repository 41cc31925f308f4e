"""Scripts that count: runs of layers, calls of hooks, what requires grad, what graphs keep."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rematch.export import Finding
from rematch.protocol import Request, Unsupported

COUNTED = {"runs", "hooks", "requires grad", "saved bytes"}
"""Aspects that are counts."""


@dataclass(frozen=True)
class Question:
    """The count that a finding is about, by its name in the script, and what it should be."""

    name: str
    expected: str
    got: str


def layer_name(kind: str, index: int | str) -> str:
    return f"{kind} {index}"


def question_of(found: Finding, aspect: str, parameters: list[str]) -> Question:
    """Raises Unsupported for a place that a script cannot tell of. `parameters`: their names in the
    script."""
    at, expected, got, name = found.at, found.parts.get("expected", ""), found.got, ""
    layer = re.search(r"layer (\d+) \((\w+)\)(?:, output (\d+))?", at)
    if "plain run" in at or "retained" in at:
        name = ""
    elif aspect == "runs" and layer and expected.isdigit():
        name = f"runs of {layer_name(layer[2], layer[1])}"
    elif aspect == "hooks" and (parameter := re.search(r"parameter (\d+)", at)):
        name = f"times that the hook of {parameters[int(parameter[1])]} fired"
    elif aspect == "requires grad":
        output = re.search(r"model (output \d+)", at)
        place = layer and f"{layer_name(layer[2], layer[1])}, output {layer[3]}"
        name = f"{place or (output and output[1])} requires grad"
        expected, got = (str(text == "requires grad") for text in (expected, got))
    elif aspect == "saved bytes" and re.search("after the forward of|saved bytes of", at):
        moment = "forward" if "after the forward" in at else "backward"
        name = f"saved bytes after the {moment}"
    if not name:
        raise Unsupported(f"no script tells of {found.law} at {at or 'an unknown place'}")
    return Question(name, expected, got)


def check(aspects: tuple[str, ...], request: Request) -> None:
    """Raises Unsupported where what is counted does not belong to one forward."""
    counts = set(aspects) & COUNTED
    protocol = request.case.protocol
    if counts and (protocol.steps * protocol.microbatches > 1 or protocol.inject != "none"):
        raise Unsupported("a script counts in one forward and its backwards only")
    if "saved bytes" in aspects and request.case.plan.offload:
        raise Unsupported("a script does not count what waits on the host")


HOOKS = "saved_tensors_hooks(Kept, lambda kept: kept.tensor)"

KEPT = """\
class Kept:  # a tensor that a graph keeps
    alive = weakref.WeakSet()

    def __init__(self, tensor):
        self.tensor = tensor
        Kept.alive.add(self)


def saved_bytes(model):
    storages = [kept.tensor.untyped_storage() for kept in Kept.alive]
    own = {tensor.data_ptr() for tensor in model}
    return sum({s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in own}.values())


"""

TAIL = """\
plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
for name, got in checkpointed.items():
    print(f"{{name}}\\n  plain         {{plain[name]}}\\n  checkpointed  {{got}}")
expected = {{{name!r}: {expected}}}
print("expected:", expected)
different = [name for name in expected if checkpointed[name] != expected[name]]
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
"""


def tail(question: Question) -> list[str]:
    return TAIL.format(name=question.name, expected=question.expected).splitlines()


LEFT_BEHIND = """\
def settings():
    return {
        "grad mode": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "hooks on saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "dispatch mode": torch._C._len_torch_dispatch_stack(),
    }


def outcome(checkpointed):
    try:
        run(checkpointed, change=True)
    except RuntimeError as error:
        return f"RuntimeError: {error}", settings()
    return "no error", settings()


before = settings()
print("plain:       ", *outcome(checkpointed=False))
error, after = outcome(checkpointed=True)
print("checkpointed:", error, after)
different = [name for name in before if before[name] != after[name]]
print("DIFFERENT: left behind: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
"""

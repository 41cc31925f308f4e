"""Answers `export` requests: a script that shows a finding in PyTorch alone.

Several scripts are written, from short to faithful, and each is run by itself; the first that shows
the finding is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import torch

from rematch.frameworks.pytorch import script_counts
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.interpreter import Interpreter
from rematch.frameworks.pytorch.layers import ops_of
from rematch.frameworks.pytorch.script import Script
from rematch.frameworks.pytorch.script_custom import CustomText, customs_of
from rematch.frameworks.pytorch.script_layers import Style, comment, draws
from rematch.frameworks.pytorch.script_model import OPS
from rematch.frameworks.pytorch.script_promise import script_of
from rematch.protocol import Request, Unsupported

FEW = 16
"""So many numbers are written out; more are drawn where that shows the same."""
MOST = 4096
LONGEST = 60
"""So many lines a script with custom layers has at most beside those that make the checkpoint()
available: more is not read."""
SECONDS = 40
"""An export takes no longer; the harness waits for 60 seconds."""

_GRADIENTS = ("gradients",)
EVERYTHING = ("outputs", "gradients", "buffers")
ASPECTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "errors": (("error",),),
    "injected-failures": (("no error", "gradients"),),
    "dropout-masks": (_GRADIENTS, ("draws",), ("outputs",)),
    "recomputed-values": (_GRADIENTS, ("draws",), ("buffers",), ("parameters",)),
    "outputs": (("outputs",),),
    "losses": (("outputs",),),
    "rng-after-forward": (("random state",),),
    "rng-after-backward": (("random state",),),
    "rng-after-step": (("random state",),),
    "absent-gradients": (_GRADIENTS,),
    "input-gradients": (("input gradient",),),
    "parameter-gradients": (_GRADIENTS,),
    "buffers-after-step": (("buffers",),),
    "parameters-after-step": (("parameters",),),
    "reevaluation": (("reevaluation",),),
}
"""By what the runs are compared for a finding of each law, in the order in which it is tried."""

TITLES = {
    "errors": "Checkpointing fails where the plain run does not, or the other way round",
    "injected-failures": "Something changes before the recomputation, and no error is raised",
    "dropout-masks": "What a random layer draws in its recomputation is not what it drew before",
    "recomputed-values": "A recomputation gives other values than the forward",
    "outputs": "With checkpointing, a forward returns other outputs",
    "losses": "With checkpointing, a forward returns another loss",
    "rng-after-forward": "With checkpointing, a forward leaves another random state",
    "rng-after-backward": "With checkpointing, a backward leaves another random state",
    "rng-after-step": "With checkpointing, a step leaves another random state",
    "absent-gradients": "With checkpointing, other gradients are None",
    "input-gradients": "With checkpointing, the gradient of the input is another one",
    "parameter-gradients": "With checkpointing, the gradient of a parameter is another one",
    "buffers-after-step": "With checkpointing, the state of layers is not updated once per forward",
    "parameters-after-step": "With checkpointing, a step leaves other parameters",
    "reevaluation": "Trained with checkpointing, the model gives other results",
}


@dataclass(frozen=True)
class Finding:
    """What the harness says: the law, its statement, the place, what was expected, what came."""

    law: str
    text: str
    parts: dict[str, str]

    @staticmethod
    def read(text: str) -> Finding:
        first, *rest = text.splitlines() or [""]
        parts = {}
        for line in rest:
            name, colon, value = line.partition(": ")
            if colon:
                parts[name] = value
        law = first.partition(":")[0].strip()
        return Finding(law if " " not in law else "", text, parts)


@dataclass(frozen=True)
class _Attempt:
    script: str
    style: Style
    aspects: tuple[str, ...]
    question: script_counts.Question | None = None


def export(
    request: Request,
    finding: str,
    own: str = "",
    layers: Mapping[str, CustomLayer] | None = None,
    compiled: str = "",
) -> str:
    """The script. `own`: the lines that import the user's checkpoint(), if it is not PyTorch's.
    `layers`: the subject's own, by their declarations. `compiled`: the decorator that compiles the
    forward. Raises Unsupported with a sentence when there is none."""
    found = Finding.read(finding)
    if found.parts.get("got", "").startswith("BrokenPromise"):
        return script_of(finding)
    deadline = time.monotonic() + SECONDS
    customs = customs_of(request, layers or {})
    if not found.law:
        return _plain_script(request, found, own, customs, compiled, deadline)
    refuse(request, found)
    attempts: list[_Attempt] = []
    if found.law == "dropout-masks" and found.parts.get("at", "").endswith(", draws"):
        # A layer that does not run as often as it should may give the same numbers.
        runs = replace(found, law="executions")
        with suppress(Unsupported):
            attempts += _attempts(request, runs, own, customs, compiled)
    attempts += _attempts(request, found, own, customs, compiled)
    if not attempts:
        raise Unsupported("the case has too many numbers to be written down")
    if customs:
        longest = LONGEST + len(own.splitlines())
        attempts = [a for a in attempts if len(a.script.splitlines()) <= longest]
        if not attempts:
            raise Unsupported(f"its script would have more than {LONGEST} lines")
    for attempt in attempts:
        if _shows(attempt, *run_alone(attempt.script, deadline), found):
            if customs and _varies(attempt, deadline):
                # What no run sets back differs in every script.
                raise Unsupported("no script was found: two plain runs differ, too")
            return attempt.script
    raise Unsupported("no script was found that shows it in PyTorch alone")


def refuse(request: Request, found: Finding) -> None:
    """Raises Unsupported for a finding that no two runs of the case can show."""
    plan = request.case.plan
    if found.law == "repeatable":
        raise Unsupported("two equal runs differ; a script compares a plain run with another one")
    if found.law not in ASPECTS and found.law not in script_counts.ASPECTS:
        raise Unsupported(f"what {found.law} compares does not show in the results of two runs")
    if not (any(request.case.choices()) or plan.offload):
        raise Unsupported("the plan checkpoints nothing, so a script would run the same twice")


def _varies(attempt: _Attempt, deadline: float) -> bool:
    """Whether two plain runs differ, too: custom layers may have state that no run sets back."""
    if attempt.question is not None or {"no error", "left behind"} & set(attempt.aspects):
        return False  # These are not compared with a plain run.
    twice = attempt.script.replace("(checkpointed=True)", "(checkpointed=False)")
    return run_alone(twice, deadline)[0] == 1


def _plain_script(
    request: Request,
    found: Finding,
    own: str,
    customs: Mapping[int, CustomText],
    compiled: str,
    deadline: float,
) -> str:
    """The case as it is, where there is nothing to be shown."""
    style = Style(exact=True, compare="nan", nan=has_rrelu(request), compiled=compiled)
    if numbers_in(request) > MOST:
        style = replace(style, literal=False)
    title = "Runs a model plain and with checkpointing, and compares them"
    scripts = [
        Script(request, style, aspects, own, customs).text(header(title, found))
        for aspects in (EVERYTHING, ("error",))
    ]
    _, out = run_alone(scripts[0], deadline)
    return (
        scripts[0]
        if out.rstrip().rpartition("\n")[2].startswith(("same", "DIFFERENT"))
        else scripts[1]
    )


def _attempts(
    request: Request, found: Finding, own: str, customs: Mapping[int, CustomText], compiled: str
) -> Iterator[_Attempt]:
    title = header((TITLES | script_counts.TITLES)[found.law], found)
    known: set[str] = set()
    for aspects in _aspects_of(found):
        for style in _styles(request, aspects):
            style = replace(style, compiled=compiled)
            try:
                text = Script(request, style, aspects, own, customs)
                question = None
                if found.law in script_counts.ASPECTS:
                    names = text.parameters
                    question = script_counts.question_of(found.law, found.parts, names)
                script = text.text(title, question)
            except Unsupported:
                if style.exact and not known:
                    raise
                continue
            if script not in known:
                known.add(script)
                yield _Attempt(script, style, aspects, question)


def _aspects_of(found: Finding) -> tuple[tuple[str, ...], ...]:
    if found.law == "injected-failures" and found.parts.get("expected") != "an error":
        return (("left behind",),)
    counted = script_counts.ASPECTS.get(found.law)
    return ASPECTS[found.law] if counted is None else ((counted,),)


def _styles(request: Request, aspects: tuple[str, ...]) -> Iterator[Style]:
    case = request.case
    few = numbers_in(request) <= FEW
    random = not few or any(draws(layer, case.protocol.train) for layer in case.layers)
    # A list of operators would reach into custom layers.
    whole = any(c.keep for c in case.choices()) and _listed(request)
    whole = whole and not request.model.custom_operands
    base = Style(literal=few, nan=has_rrelu(request))
    for compare in ("equal", "none", "bits", "nan"):
        for seed in range(4 if random else 1):
            for summed in (True, False):
                for ops in (True, False) if whole else (False,):
                    for grad in (False, True) if "no error" in aspects else (False,):
                        if summed and (case.protocol.loss != "mse" or "saved bytes" in aspects):
                            continue
                        yield replace(
                            base,
                            seed=seed,
                            summed=summed,
                            whole_ops=ops,
                            compare=compare,
                            input_grad=grad,
                        )
        if numbers_in(request) <= MOST:
            yield Style(exact=True, compare=compare, nan=base.nan)


def _listed(request: Request) -> bool:
    """Whether a list of operators can say what every policy keeps."""
    kept = {k.op for c in request.case.choices() for k in c.keep}
    present = set()
    for layer in request.case.layers:
        present.update(ops_of(layer, request.case.protocol.train))
    return kept & present <= set(OPS)


def numbers_in(request: Request) -> int:
    arrays = request.arrays
    return sum(a.size for a in (*arrays.parameters, *arrays.inputs, *arrays.targets))


def has_rrelu(request: Request) -> bool:
    return any(layer.kind == "rrelu" for layer in request.case.layers)


def header(title: str, found: Finding) -> str:
    place = found.parts.get("at", "")
    # The script prints errors in full.
    got = found.parts.get("got", "").partition(". ")[0]
    lines = comment(title + ".")
    if place:
        expected = found.parts.get("expected", "")
        lines += comment(f"Found at {place}: expected {expected}, got {got}")
    return "\n".join([*lines, f"# torch {torch.__version__}; run: python this_file.py"])


@cache
def _interpreter() -> Interpreter:
    return Interpreter()


def run_alone(script: str, deadline: float) -> tuple[int, str]:
    """The exit status of a script and what it printed. Raises Unsupported when time is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise Unsupported(f"no script was found within {SECONDS} seconds")
    status, out, _ = _interpreter().run(script, left)
    return status, out


def _shows(attempt: _Attempt, status: int, out: str, found: Finding) -> bool:
    last = out.rstrip().rpartition("\n")[2]
    if status != 1 or not last.startswith("DIFFERENT"):
        return False
    if attempt.question is not None:
        name, got = attempt.question.name, attempt.question.got
        return f"{name}\n" in out and f"  checkpointed  {got}\n" in out
    if "left behind" in attempt.aspects:
        left = found.parts.get("got", "").removeprefix("changed: ")
        return all(name in last for name in left.split(", "))
    if "error" in attempt.aspects:
        # The same error, not one that the shortened script brought in.
        return found.parts.get("got", "").partition(": ")[2][:30] in out
    if "no error" in attempt.aspects:
        return attempt.style.exact or "is wrong" in last
    plain = [line for line in out.splitlines() if line.startswith("  plain")]
    return attempt.style.compare == "nan" or not any("nan" in line for line in plain)

"""Answers `export` requests for PyTorch: the styles of scripts, from short to faithful."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

import torch

from rematch.export import FEW, LAWS, Attempt, Finding, Search, last_line, numbers_in
from rematch.frameworks.pytorch import script_counts
from rematch.frameworks.pytorch.contract import script_of
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.interpreter import Interpreter
from rematch.frameworks.pytorch.layers import draws, ops_of
from rematch.frameworks.pytorch.script import Script
from rematch.frameworks.pytorch.script_custom import CustomText, customs_of
from rematch.frameworks.pytorch.script_layers import Style, comment
from rematch.frameworks.pytorch.script_model import OPS
from rematch.protocol import Request, Unsupported

MOST = 4096
LONGEST = 60
"""So many lines a script with custom layers has at most beside those that make the checkpoint()
available: more is not read."""
EVERYTHING = ("outputs", "gradients", "buffers")


def export(
    request: Request, finding: str, own: str = "", layers: Mapping[str, CustomLayer] | None = None, compiled: str = ""
) -> str:
    """The script. `own`: the lines that import the user's checkpoint(), if it is not PyTorch's.
    `layers`: the subject's own, by their declarations. `compiled`: the decorator that compiles the
    forward. Raises Unsupported with a sentence when there is none."""
    found = Finding.read(finding)
    if found.law == "promises":
        return script_of(finding)
    search = search_of_torch()
    customs = customs_of(request, layers or {})
    if not found.law:
        return _plain_script(request, found, own, customs, compiled, search)
    refuse(request, found)
    attempts: list[Attempt] = []
    if found.law == "dropout-masks" and found.at.endswith(", draws"):
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
    script = search.first(attempts)
    # Scripts that count, or show that no error is raised, compare nothing with a plain run.
    compared = "change=True" not in script and "expected = {" not in script
    if customs and compared and varies(script, search):
        # State that no run sets back differs in every script.
        raise Unsupported("no script was found: two plain runs differ, too")
    return script


def refuse(request: Request, found: Finding) -> None:
    """Raises Unsupported for a finding that no two runs of the case can show."""
    plan = request.case.plan
    if found.law == "repeatable":
        raise Unsupported("two equal runs differ; a script compares a plain run with another one")
    if found.law not in LAWS:
        raise Unsupported(f"what {found.law} compares does not show in the results of two runs")
    if not (any(request.case.choices()) or plan.offload):
        raise Unsupported("the plan checkpoints nothing, so a script would run the same twice")


def varies(script: str, search: Search) -> bool:
    """Whether two plain runs differ, too: custom layers may have state that no run sets back."""
    return search.run(script.replace("(checkpointed=True)", "(checkpointed=False)"))[0] == 1


def _plain_script(
    request: Request, found: Finding, own: str, customs: Mapping[int, CustomText], compiled: str, search: Search
) -> str:
    """The case as it is, where there is nothing to be shown."""
    style = Style(exact=True, compare="nan", nan=has_rrelu(request), compiled=compiled)
    if numbers_in(request) > MOST:
        style = replace(style, literal=False)
    title = "Runs a model plain and with checkpointing, and compares them"
    scripts = [
        Script(request, style, aspects, own, customs).text(header(title, found)) for aspects in (EVERYTHING, ("error",))
    ]
    ended = last_line(search.run(scripts[0])[1]).startswith(("same", "DIFFERENT"))
    return scripts[0] if ended else scripts[1]


def _attempts(
    request: Request, found: Finding, own: str, customs: Mapping[int, CustomText], compiled: str
) -> Iterator[Attempt]:
    title = header(LAWS[found.law][0], found)
    known: set[str] = set()
    for aspects in _aspects_of(found):
        for style in _styles(request, aspects):
            style = replace(style, compiled=compiled)
            try:
                text = Script(request, style, aspects, own, customs)
                question = None
                if aspects[0] in script_counts.COUNTED:
                    names = text.parameters
                    question = script_counts.question_of(found, aspects[0], names)
                script = text.text(title, question)
            except Unsupported:
                if style.exact and not known:
                    raise
                continue
            if script not in known:
                known.add(script)
                yield Attempt(script, partial(_shows, found, aspects, style, question))


def _aspects_of(found: Finding) -> list[tuple[str, ...]]:
    if found.law == "injected-failures":
        return [LAWS[found.law][1] if found.parts.get("expected") == "an error" else ("left behind",)]
    return [(aspect,) for aspect in LAWS[found.law][1]]


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
                        yield replace(base, seed=seed, summed=summed, whole_ops=ops, compare=compare, input_grad=grad)
        if numbers_in(request) <= MOST:
            yield Style(exact=True, compare=compare, nan=base.nan)


def _listed(request: Request) -> bool:
    """Whether a list of operators can say what every policy keeps."""
    kept = {k.op for c in request.case.choices() for k in c.keep}
    present = set()
    for layer in request.case.layers:
        present.update(ops_of(layer, request.case.protocol.train))
    return kept & present <= set(OPS)


def has_rrelu(request: Request) -> bool:
    return any(layer.kind == "rrelu" for layer in request.case.layers)


def header(title: str, found: Finding) -> str:
    place = found.at
    # The script prints errors in full.
    got = found.got.partition(". ")[0]
    lines = comment(title + ".")
    if place:
        expected = found.parts.get("expected", "")
        lines += comment(f"Found at {place}: expected {expected}, got {got}")
    return "\n".join([*lines, f"# torch {torch.__version__}; run: python this_file.py"])


@cache
def _interpreter() -> Interpreter:
    return Interpreter()


def search_of_torch() -> Search:
    """A search whose scripts are run where PyTorch has been imported."""
    return Search(lambda script, left: _interpreter().run(script, left)[:2], "PyTorch")


def _shows(
    found: Finding,
    aspects: tuple[str, ...],
    style: Style,
    question: script_counts.Question | None,
    status: int,
    out: str,
) -> bool:
    last = last_line(out)
    if status != 1 or not last.startswith("DIFFERENT"):
        return False
    if question is not None:
        return f"{question.name}\n" in out and f"  checkpointed  {question.got}\n" in out
    if "left behind" in aspects:
        return all(name in last for name in found.got.removeprefix("changed: ").split(", "))
    if "error" in aspects:
        # The same error, not one that the shortened script brought in.
        return found.got.partition(": ")[2][:30] in out
    if "no error" in aspects:
        return style.exact or "is wrong" in last
    plain = [line for line in out.splitlines() if line.startswith("  plain")]
    return style.compare == "nan" or not any("nan" in line for line in plain)

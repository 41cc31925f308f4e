"""Answers `export` requests for PyTorch: scripts from short to faithful, of which the first that shows the finding is
the answer."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import torch

from rematch.frameworks.pytorch.contract import script_of
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.interpreter import Interpreter
from rematch.frameworks.pytorch.operators import INFERENCE
from rematch.frameworks.pytorch.script import TorchScript
from rematch.frameworks.pytorch.source import Text
from rematch.subjects.export import LAWS, Attempt, Finding, Search, last_line
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.script import Style, shows

LONGEST = 80
"""How many lines a script with layers of the subject's own may have, beside those that make the checkpoint()
available: nobody reads more."""


def export(
    request: Request,
    finding: str,
    own: str = "",
    layers: Mapping[str, CustomLayer] | None = None,
    compiled: str = "",
    kept: Iterable[Any] = (),
) -> str:
    """The script. `own`: the lines that import the user's checkpoint(), if it is not PyTorch's.
    `layers`: the subject's own, by their declarations. `kept`: the operators of which a policy
    keeps results. `compiled`: the decorator that compiles the
    forward. Raises Unsupported with a sentence when there is none."""
    found = Finding.read(finding)
    inferred = found.at == f"promise {INFERENCE}"
    if found.law == "promises" and not inferred:
        return script_of(finding)
    text = Text(f"torch {torch.__version__}", own, list((layers or {}).values()), kept)
    search = search_of_torch()
    write = partial(TorchScript, text, request)
    if not found.law:
        return plain_script(partial(write, compiled=compiled), found)
    if not inferred:
        refuse(request, found)
    attempts, why = [], "the case has too many numbers to be written down"
    longest = LONGEST + len(own.splitlines()) if request.model.custom_operands else 10**6
    for aspect in ("inference",) if inferred else LAWS[found.law]:
        for style in _styles(aspect):
            try:
                writer = write(style, found, aspect, compiled)
                script = writer.text()
            except Unsupported as refused:
                why = str(refused)
                break
            except OverflowError:
                continue
            if len(script.splitlines()) > longest:
                why = f"its script would have more than {longest} lines"
            else:
                attempts.append(Attempt(script, partial(_shows, found, aspect, style), writer.short))
    if not attempts:
        raise Unsupported(why)
    return repeatable(request, search.first(attempts), search)


def _styles(aspect: str) -> Iterator[Style]:
    for seed in range(4):
        yield Style(seed)
        if aspect == "trial":
            yield Style(seed, input_grad=True)
    yield Style(exact=True)


def refuse(request: Request, found: Finding) -> None:
    """Raises Unsupported for a finding that no two runs of the case can show."""
    plan = request.case.plan
    if found.law == "repeatable":
        raise Unsupported("two equal runs differ; a script compares a plain run with another one")
    if found.law not in LAWS:
        raise Unsupported(f"what {found.law} compares does not show in the results of two runs")
    if not (any(request.case.choices()) or plan.offload):
        raise Unsupported("the plan checkpoints nothing, so a script would run the same twice")


def repeatable(request: Request, script: str, search: Search) -> str:
    """The script. Raises Unsupported where two plain runs differ, too: custom layers may have state that no run sets
    back."""
    # Scripts that know what they expect compare nothing with a plain run.
    twice = re.sub(r"(expected, got = \w+\(False\), \w+)\(True\)", r"\1(False)", script)
    if request.model.custom_operands and "expected[" not in script and twice != script:
        if last_line(search.run(twice)[1]).startswith("DIFFERENT"):
            raise Unsupported("no script was found: two plain runs differ, too")
    return script


def plain_script(write: Callable[..., TorchScript], found: Finding) -> str:
    """The case as it is, where there is nothing to be shown."""
    for style in (Style(exact=True), Style()):
        with suppress(OverflowError):
            return write(style, found, "").text()
    raise Unsupported("the case has too many numbers to be written down")


@cache
def _interpreter() -> Interpreter:
    return Interpreter()


def search_of_torch() -> Search:
    """A search whose scripts are run where PyTorch has been imported."""
    return Search(lambda script, left: _interpreter().run(script, left)[:2], "PyTorch")


def _shows(found: Finding, aspect: str, style: Style, status: int, out: str) -> bool:
    last = last_line(out)
    if aspect == "trial" and found.parts.get("expected") == "an error":
        # A gradient that is wrong says more than that there was no error.
        return status == 1 and "an error is raised" in last and (style.exact or ".grad" in last)
    if aspect == "trial":
        return all(name in last for name in found.got.removeprefix("changed: ").split(", "))
    if aspect == "error" and found.got.partition(": ")[2][:30] not in out:
        # Not an error that the shortened script brought in.
        return False
    return shows(found, aspect, ("",), status, out)

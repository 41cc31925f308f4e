"""Answers `export` requests of what runs on several ranks: with one script, the case to the bit, if
it shows the finding when it is run by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rematch.export import LAWS, Finding, last_line, numbers_in
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.export import EVERYTHING, MOST, has_rrelu, header, refuse, search_of_torch, varies
from rematch.frameworks.pytorch.script_counts import COUNTED
from rematch.frameworks.pytorch.script_custom import customs_of
from rematch.frameworks.pytorch.script_layers import Style
from rematch.frameworks.pytorch.script_parallel import ParallelScript
from rematch.frameworks.pytorch.setup import Setup
from rematch.protocol import Request, Unsupported

_OF_RANKS = {
    "parameter_gradient": "gradients",
    "parameter": "parameters",
    "random state": "random state",
    "rank 0": "error",
}
"""Results that a script compares to show that ranks differ in this."""


def export_parallel(request: Request, text: str, layers: Mapping[str, CustomLayer], setup: Setup) -> str:
    """The script. `setup`: how the plain run was run in the end. Raises Unsupported with a sentence
    where there is none."""
    found = Finding.read(text)
    search = search_of_torch()
    if found.law:
        refuse(request, found)
    if numbers_in(request) > MOST:
        raise Unsupported("the case has too many numbers to be written down")
    aspects = _aspects_of(found)
    title = LAWS[found.law][0] if found.law else "Runs a model plain and with checkpointing, and compares"
    if found.got.startswith("RanksDiffer"):
        title = "With checkpointing, ranks have different numbers where all should have the same"
    style = Style(exact=True, compare="bits", nan=has_rrelu(request))
    script = ParallelScript(request, style, aspects, "", customs_of(request, layers), setup=setup)
    made = script.text(header(f"{title}, on {setup.ranks} ranks", found))
    if not found.law:
        return made
    status, out = search.run(made)
    last = last_line(out)
    if status != 1 or not last.startswith("DIFFERENT") or not _tells(found, script, out, last):
        raise Unsupported("no script was found that shows it in PyTorch alone")
    if script._layers.customs and varies(made, search):
        raise Unsupported("no script was found: two plain runs differ, too")
    return made


def _aspects_of(found: Finding) -> tuple[str, ...]:
    if not found.law:
        return EVERYTHING
    kind, _, message = found.got.partition(": ")
    if kind == "RanksDiffer":
        for quantity, aspect in _OF_RANKS.items():
            if re.match(rf"{quantity}\b", message):
                return (aspect,)
        what = message.partition(":")[0]
        raise Unsupported(f"what ranks differ in does not show in their results: {what}")
    aspects = LAWS[found.law][1]
    if set(aspects) & COUNTED:
        raise Unsupported(f"no script counts on several ranks what {found.law} compares")
    return aspects if "no error" in aspects else aspects[:1]


def _tells(found: Finding, script: ParallelScript, out: str, last: str) -> bool:
    """Whether what a script printed is the finding, not something else."""
    kind, _, message = found.got.partition(": ")
    if found.law != "errors":
        return "error of rank" not in last
    if kind == "Hang":
        # In a script a rank that fails ends, and no other waits for it.
        told = [text for name, text in found.parts.items() if re.match(r"rank \d+$", name)]
        failed = [text for text in told if re.match(r"\w+: ", text)]
        return any(text[:60] in out for text in failed) or "no answer within" in out
    if kind != "RanksDiffer":
        return "error of rank" in last and message[:30] in out
    if number := re.match(r"parameter(?:_gradient)? (\d+)", message):
        end = ".grad" if message.startswith("parameter_gradient") else ""
        run = "plain" if found.at.startswith("plain") else "checkpointed"
        name = f"{script.parameters[int(number[1])]}{end}"
        return f"{name} differs between ranks of the {run} run" in last
    if state := re.match(r"random state of rank \d+", message):
        return state[0] in last and "error of rank" not in last
    told = re.match(r"rank 0: (.*); rank \d+: (.*)", message, re.DOTALL)
    errors = [text for text in told.groups() if text != "no error"] if told else []
    return "error of rank" in last and bool(errors) and all(e[:30] in out for e in errors)

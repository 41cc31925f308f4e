"""Answers `export` requests for PyTorch: scripts from short to faithful, of which the first that shows the finding is
the answer."""

import atexit
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from rematch.frameworks.pytorch.contract import script_of
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.operators import INFERENCE
from rematch.frameworks.pytorch.script import TorchScript
from rematch.frameworks.pytorch.source import Text
from rematch.subjects.export import LAWS, Attempt, Finding, Search, last_line
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.script import Style, shows

# Importing PyTorch, and what a first checkpoint imports further, takes seconds: it is done once,
# and every script runs in a copy of the process that did. The copy ends without Python's
# finalization, which would take as long.
_SERVER = """\
import json, os, runpy, signal, sys, traceback
import torch, torch._dynamo

def run(folder, seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    os.chdir(folder)
    for descriptor, name in enumerate((os.devnull, "out", "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), descriptor)
    try:
        runpy.run_path("script.py", run_name="__main__")
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1

for line in sys.stdin:
    if not (child := os.fork()):
        status = run(*json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


class Interpreter:
    """Python with PyTorch and nothing else imported, until this process ends. `options`: those of
    the interpreter."""

    def __init__(self, *options: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, *options, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._server.communicate)

    def run(self, script: str, seconds: float) -> tuple[int, str, str]:
        """The exit status of a script, less than 0 where a signal or the time limit ended it, and
        what it printed to stdout and to stderr."""
        assert self._server.stdin is not None and self._server.stdout is not None
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "script.py").write_text(script)
            self._server.stdin.write(json.dumps([name, seconds]) + "\n")
            self._server.stdin.flush()
            status = int(self._server.stdout.readline())
            out, err = ((folder / printed).read_text() for printed in ("out", "err"))
        return status, out, err


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


_interpreter = cache(Interpreter)


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

"""The search for a script that shows a finding in the framework alone.

Several scripts are written, from short to faithful, and each is run by itself; the first that shows the finding is
the answer.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rematch.subjects.protocol import Unsupported

FEW = 16
"""How many numbers are written out; more are drawn where that shows the same."""
SECONDS = 40
"""An export takes no longer; the harness waits for 60 seconds."""

LAWS: dict[str, tuple[str, ...]] = {
    "errors": ("error",),
    "injected-failures": ("trial",),
    "dropout-masks": ("runs", "gradients", "draws", "outputs"),
    "recomputed-values": ("gradients", "draws", "buffers", "parameters"),
    "outputs": ("outputs",),
    "losses": ("outputs",),
    "rng-after-forward": ("random state",),
    "rng-after-backward": ("random state",),
    "rng-after-step": ("random state",),
    "absent-gradients": ("gradients",),
    "input-gradients": ("input gradient",),
    "parameter-gradients": ("gradients",),
    "buffers-after-step": ("buffers",),
    "parameters-after-step": ("parameters",),
    "reevaluation": ("reevaluation",),
    "executions": ("runs",),
    "last-segment": ("runs",),
    "hooks": ("hooks",),
    "requires-grad-map": ("requires grad",),
    "saved-bytes": ("saved bytes",),
    "bytes-after-backward": ("saved bytes",),
}
"""For a finding of each law by what the runs are compared, in the order in which it is tried."""


@dataclass(frozen=True)
class Finding:
    """A finding as the harness tells it: the law, its statement, the place, what was expected, what came."""

    law: str
    text: str
    parts: dict[str, str]

    @staticmethod
    def read(text: str) -> "Finding":
        first, *rest = text.splitlines() or [""]
        parts = {}
        for line in rest:
            name, colon, value = line.partition(": ")
            if colon:
                parts[name] = value
        law = first.partition(":")[0].strip()
        return Finding(law if " " not in law else "", text, parts)

    @property
    def at(self) -> str:
        return self.parts.get("at", "")

    @property
    def got(self) -> str:
        return self.parts.get("got", "")

    def comment(self) -> str:
        """The finding as lines of a comment."""
        return "".join(f"# {line[:200]}".rstrip() + "\n" for line in self.text.strip().splitlines())


def interpreter(script: str, seconds: float) -> tuple[int, str]:
    """Runs a script in an interpreter of its own. Returns its exit status, -9 where time is over, and what it
    printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(script)
        try:
            ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return -9, ""
    return ended.returncode, ended.stdout


@dataclass(frozen=True)
class Attempt:
    """A script, and whether its exit status and what it prints show the finding."""

    script: str
    shows: Callable[[int, str], bool]
    short: Callable[[str], str] = lambda name: ""
    """The script that compares only the result of that name, or nothing."""


class Search:
    """Runs scripts, each once, until an export has taken SECONDS."""

    def __init__(self, run: Callable[[str, float], tuple[int, str]] = interpreter, name: str = "the framework") -> None:
        self._run, self._name = run, name
        self._end = time.monotonic() + SECONDS
        self._ended: dict[str, tuple[int, str]] = {}

    def run(self, script: str) -> tuple[int, str]:
        """The exit status of a script and what it printed. Raises Unsupported when time is over."""
        if script not in self._ended:
            left = self._end - time.monotonic()
            if left <= 0:
                raise Unsupported(f"no script was found within {SECONDS} seconds")
            self._ended[script] = self._run(script, left)
        return self._ended[script]

    def first(self, attempts: Iterable[Attempt]) -> str:
        """The script of the first attempt that shows the finding. Raises Unsupported where none does."""
        for attempt in attempts:
            status, out = self.run(attempt.script)
            if attempt.shows(status, out):
                return self._shortened(attempt, out)
        raise Unsupported(f"no script was found that shows it in {self._name} alone")

    def _shortened(self, attempt: Attempt, out: str) -> str:
        """The script of the first result that shows the finding by itself, if any does."""
        before = out.rstrip().rpartition("DIFFERENT: ")[0]
        for name in re.findall(r"^(\S.*)\n  expected ", out, re.MULTILINE):
            if not attempt.shows(1, f"{before}DIFFERENT: {name}"):
                continue
            with suppress(Unsupported):
                short = attempt.short(name)
                status, out = self.run(short) if short else (0, "")
                # Objects that are no numbers differ by their addresses.
                if short and attempt.shows(status, out) and "<" not in out:
                    return short
        return attempt.script


def last_line(out: str) -> str:
    return out.rstrip().rpartition("\n")[2]

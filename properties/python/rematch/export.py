"""The search for a script that shows a finding in the framework alone.

Several scripts are written, from short to faithful, and each is run by itself; the first that shows the finding is
the answer.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rematch.protocol import Request, Unsupported

FEW = 16
"""So many numbers are written out; more are drawn where that shows the same."""
SECONDS = 40
"""An export takes no longer; the harness waits for 60 seconds."""

LAWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "errors": ("Checkpointing fails where the plain run does not, or the other way round", ("error",)),
    "injected-failures": (
        "Something changes before the recomputation, and no error is raised",
        ("no error", "gradients"),
    ),
    "dropout-masks": (
        "What a random layer draws in its recomputation is not what it drew before",
        ("gradients", "draws", "outputs"),
    ),
    "recomputed-values": (
        "A recomputation gives other values than the forward",
        ("gradients", "draws", "buffers", "parameters"),
    ),
    "outputs": ("With checkpointing, a forward returns other outputs", ("outputs",)),
    "losses": ("With checkpointing, a forward returns another loss", ("outputs",)),
    "rng-after-forward": ("With checkpointing, a forward leaves another random state", ("random state",)),
    "rng-after-backward": ("With checkpointing, a backward leaves another random state", ("random state",)),
    "rng-after-step": ("With checkpointing, a step leaves another random state", ("random state",)),
    "absent-gradients": ("With checkpointing, other gradients are None", ("gradients",)),
    "input-gradients": ("With checkpointing, the gradient of the input is another one", ("input gradient",)),
    "parameter-gradients": ("With checkpointing, the gradient of a parameter is another one", ("gradients",)),
    "buffers-after-step": ("With checkpointing, the state of layers is not updated once per forward", ("buffers",)),
    "parameters-after-step": ("With checkpointing, a step leaves other parameters", ("parameters",)),
    "reevaluation": ("Trained with checkpointing, the model gives other results", ("reevaluation",)),
    "executions": ("With checkpointing, a layer does not run as often as it should", ("runs",)),
    "last-segment": ("The last segment of checkpoint_sequential() is not stored", ("runs",)),
    "hooks": ("With checkpointing, the hook of a parameter does not fire as often as it should", ("hooks",)),
    "requires-grad-map": (
        "With checkpointing, a value requires grad that should not, or the other way round",
        ("requires grad",),
    ),
    "saved-bytes": ("With checkpointing, a forward does not save the bytes that it should", ("saved bytes",)),
    "bytes-after-backward": ("With checkpointing, bytes are still saved after the backward", ("saved bytes",)),
}
"""For a finding of each law the title of its script, and by what the runs are compared, in the order in which it is
tried."""


@dataclass(frozen=True)
class Finding:
    """A finding as the harness tells it: the law, its statement, the place, what was expected, what came."""

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

    @property
    def at(self) -> str:
        return self.parts.get("at", "")

    @property
    def got(self) -> str:
        return self.parts.get("got", "")

    def comment(self) -> str:
        """The finding as lines of a comment."""
        return "".join(f"# {line}".rstrip() + "\n" for line in self.text.strip().splitlines())


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
            if attempt.shows(*self.run(attempt.script)):
                return attempt.script
        raise Unsupported(f"no script was found that shows it in {self._name} alone")


def last_line(out: str) -> str:
    return out.rstrip().rpartition("\n")[2]


def numbers_in(request: Request) -> int:
    arrays = request.arrays
    return sum(a.size for a in (*arrays.parameters, *arrays.inputs, *arrays.targets))

"""Finds the program that is written in C++, lists its commands, and hands over to it."""

import json
import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlparse

PACKAGE = Path(__file__).parent
DISTRIBUTION = "rematch-checkpoint"
COMMANDS = {
    "check": "look for bugs: run random cases plain and checkpointed, and compare them",
    "replay": "run one case again",
    "show": "show a case",
    "laws": "list what is checked",
    "subjects": "list the implementations that can be tested",
    "conform": "compare several implementations on one page",
    "faults": "show that the laws can fail",
    "serve": "answer as a subject",
    "scenario": "answer questions that people asked, with a run",
}
"""The program's commands, for help if it is missing."""

_BUILDS = ("release", "program", "cpu", "native")


def checkout() -> Path | None:
    """Returns the folder of sources that this package is in, or was installed from; None if there is none."""
    places = [PACKAGE.resolve().parents[2]]
    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        places.append(Path(unquote(urlparse(origin.get("url", "")).path)))
    except PackageNotFoundError:
        # It was not installed.
        pass
    return next((place for place in places if (place / "ci" / "build").is_file()), None)


def program() -> Path | None:
    """Returns the program in this package, or else in its checkout; None if there is none."""
    places = [PACKAGE / "_program" / "bin" / "rematch"]
    if (sources := checkout()) is not None:
        places += [sources / "build" / build / "bin" / "rematch" for build in _BUILDS]
    return next((place for place in places if place.is_file()), None)


def how_to_get_it() -> str:
    sources = checkout()
    there = f"in {sources}" if sources else "in the sources of Rematch"
    return (
        f"`ci/build release rematch rematch-scenario` {there} makes it (5 CPU minutes), "
        "`REMATCH_PROGRAM=1 pip install .` there installs it with the package"
    )


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        # Not even the package "mlx" of "mlx.core" is there.
        return False


def environment() -> dict[str, str]:
    """Returns environment variables for the program. Subjects whose framework is installed here run in this
    interpreter; for others the program looks for one that `ci/setup --frameworks` made."""
    if os.environ.get("REMATCH_PYTHON"):
        return dict(os.environ)
    told = {}
    for file in (PACKAGE / "frameworks").glob("*/framework.json"):
        known = json.loads(file.read_text()).get("environments", {})
        for name, needs in known.items():
            if _is_here(needs["module"]):
                told["REMATCH_PYTHON_" + re.sub(r"[^A-Z0-9]", "_", name.upper())] = sys.executable
    return told | dict(os.environ)


def become(found: Path, words: Sequence[str]) -> None:
    """Replaces this process by the program. Command lines that it prints begin with the name by which it was called."""
    script = Path(sys.executable).with_name("rematch")
    if not Path(sys.argv[0]).name.startswith("__main__"):
        script = Path(sys.argv[0])
    os.execve(found, [str(script if script.exists() else found), *words], environment())

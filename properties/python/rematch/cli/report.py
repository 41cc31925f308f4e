"""`rematch report`: the facts of a known bug of a framework, in the order that its tracker asks for."""

import ast
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rematch.cli import parser_of, refuse, sentence
from rematch.program import PACKAGE

FOLDER = Path("golden/conformance/bugs")
"""Where a checkout has the scripts: one folder for each framework."""
PYTHON = "REMATCH_PYTHON=PATH chooses another one, such as that of `ci/setup --frameworks NAME`"

EXAMPLE = f"""\
examples:
  rematch report                                  lists the bugs
  rematch report pytorch/kept_draw_before_draw    runs its script here, and prints the facts for its tracker

Exit status 0: the bug shows here; 1: it does not: it is fixed, or needs another machine; 2: no such bug, or its script
does not run here. Scripts run in the Python of PyTorch.
{PYTHON}.
"""

POLICY = "A person has to write the report: these are facts for that person, not its text."

POLICIES = {
    "pytorch": " PyTorch takes no contributions of autonomous agents, and wants text by AI marked as such, beside words"
    " of yours (AI_POLICY.md); under Versions, the output of python -m torch.utils.collect_env.",
    "mlx": " MLX prohibits issues that are written by AI.",
    "keras": " Keras takes no changes that nobody has reviewed.",
}

SECTIONS = {
    "pytorch": ("Describe the bug", "Script", "Output", "Versions"),
    "diffusers": ("Describe the bug", "Reproduction", "Logs", "System Info"),
    "mlx": ("Describe the bug", "To Reproduce", "Output", "Desktop"),
}
"""The sections of bug-report.yml or its like, for the text, the script, its output and the versions."""

LIMIT = 300
"""Seconds that a script may take."""

KEYS = ("severity", "versions", "promise", "cause", "thread", "searched")


@dataclass
class Bug:
    """What the docstring of a script says, and the entries of profiles that name it."""

    name: str
    title: str
    text: str
    facts: dict[str, list[str]] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    """What each of these entries says of trackers, by "framework:id"."""

    @property
    def state(self) -> str:
        """What trackers know of it: "near https://...", or when somebody searched there in vain."""
        searched = [f"no thread found in {date}" for date in self.facts.get("searched", [])]
        return "; ".join({**dict.fromkeys(self.facts.get("thread", searched)), **dict.fromkeys(self.entries.values())})


def entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the known differences of all profiles, each with its name, as "framework:id"."""
    for file in sorted((PACKAGE / "frameworks").glob("*/profile*.json")):
        for entry in json.loads(file.read_text(encoding="utf-8")).get("known", []):
            yield f"{file.parent.name}:{entry['id']}", entry


def _states(name: str) -> dict[str, str]:
    states = {}
    for entry_name, entry in entries():
        if entry.get("script") == name:
            state = entry.get("reported", "not reported")
            states[entry_name] = f"reported {state}" if state.startswith("https:") else state
    return states


def read(file: Path) -> Bug:
    """Returns what the docstring of a script says: a title, some text, and lines "key: value", which may be continued.
    Raises ValueError for a script without them."""
    words = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    title, _, rest = words.partition("\n\n")
    text, facts, last = [], {}, None
    for line in rest.splitlines():
        key, colon, value = line.partition(": ")
        if colon and key in KEYS:
            last = facts.setdefault(key, [])
            last.append(value.strip())
        elif last and line.startswith(" "):
            last[-1] += f" {line.strip()}"
        else:
            text.append(line)
    name = f"{file.parent.name}/{file.stem}"
    bug = Bug(name, title, "\n".join(text).strip(), facts, _states(name))
    if absent := [key for key in ("severity", "promise", "cause") if key not in facts]:
        raise ValueError(f"{file}: its docstring has no line {absent[0]!r}")
    return bug


def verdict(status: int, output: str, errors: str) -> str:
    """Returns "wrong" or "right" for what a script said of its bug, or why it says nothing here: it failed, it has no
    control, or a control is wrong, too."""
    controls = [line for line in output.splitlines() if line.startswith("control")]
    wrong = [line for line in output.splitlines() if "WRONG" in line]
    if control := next((line for line in controls if "WRONG" in line), None):
        return control
    if "Traceback" not in errors and controls and status == bool(wrong):
        return "wrong" if wrong else "right"
    said = errors.strip().splitlines() or [f"exit status {status}"]
    return next((line for line in reversed(said) if re.match(r"[\w.]*(Error|Exception)\b", line)), said[-1])


def run(python: str, file: Path) -> tuple[str, str]:
    """Runs a script. Returns its verdict and what it printed."""
    env = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [python, "-W", "ignore", str(file)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {LIMIT} s", ""
    return verdict(ran.returncode, ran.stdout, ran.stderr), ran.stdout


def in_order(release: str) -> list[int]:
    """A key to sort releases by."""
    return [int(part) for part in re.findall(r"\d+", release)]


def dates(row: dict[str, str], tells_errors: bool = False) -> str:
    """Returns "since 2.11.0, still in 2.15.0", or "from 2.9.1 to 2.12.1", of what a script said in each release; "in
    none" where each was right, and an empty text where no release says anything. ci/maintain/since asks them. With
    `tells_errors` it says how the release before the first wrong one failed: "since 3.0.0; 2.6.2 raised ..."."""
    releases = sorted(row, key=in_order)
    wrong = [release for release in releases if row[release] == "wrong"]
    if not wrong:
        return "in none" if "right" in row.values() else ""
    before = [row[release] for release in releases[: releases.index(wrong[0])]]
    error = re.match(r"(?:\[rank0\]: )?(\w+Error.*?)(?: \(/.*\))?$", before[-1]) if before and tells_errors else None
    raised = f"; {releases[len(before) - 1]} raised {error[1]}" if error else ""
    first = wrong[0] + ("" if error or "right" in before else ", undecided before" if before else " or earlier")
    if "right" in (row[release] for release in releases[releases.index(wrong[-1]) :]):
        return f"from {first} to {wrong[-1]}{raised}"
    return f"since {first}" + (f", still in {wrong[-1]}" if len(wrong) > 1 else "") + raised


def releases(folder: Path, name: str) -> dict[str, str]:
    """Returns what the script said in each release that was asked."""
    table = folder / "versions.json"
    return json.loads(table.read_text(encoding="utf-8")).get(name, {}) if table.exists() else {}


def bugs(folder: Path) -> dict[str, Path]:
    """Returns the scripts by name, as "pytorch/kept_draw_before_draw"."""
    return {f"{file.parent.name}/{file.stem}": file for file in sorted(folder.glob("*/*.py"))}


def _versions(bug: Bug) -> str:
    names = {words.split()[0] for words in ", ".join(["torch", *bug.facts.get("versions", [])]).split(", ")}
    found = []
    for name in sorted(names):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join([*found, f"Python {platform.python_version()}", platform.platform()])


def _told(bug: Bug, script: str, output: str, here: str, shown: str) -> str:
    framework = bug.name.partition("/")[0]
    described, reproduced, logged, versions = SECTIONS.get(framework, SECTIONS["pytorch"])
    facts = [f"- {key}: {value}" for key in ("promise", "cause") for value in bug.facts[key]]
    return "\n".join([
        f"{POLICY}{POLICIES.get(framework, '')}\n",
        f"# {bug.title}\n",
        f"## {described}\n",
        f"{bug.text}\n",
        *facts,
        f"- severity: {', '.join(bug.facts['severity'])}",
        f"- releases: {shown or 'not tried'}",
        f"- trackers: {bug.state}\n",
        f"## {reproduced}\n\n```python\n{script}```\n",
        f"## {logged}\n\n```\n{output}```\n",
        f"## {versions}\n\n{here}",
    ])  # fmt: skip


def _code(script: str) -> str:
    """The script without its docstring, which the report says beside it."""
    first = ast.parse(script).body[0]
    return "\n".join(script.splitlines()[first.end_lineno :]).lstrip("\n") + "\n"


def main(arguments: list[str]) -> None:
    """Raises SystemExit with the statuses that --help names."""
    parser = parser_of("report", "Prints the facts of a known bug for the tracker of its framework.", EXAMPLE)
    parser.add_argument("name", nargs="?", metavar="FRAMEWORK/NAME", help="the bug; without one, all are listed")
    parser.add_argument("--bugs", type=Path, default=FOLDER, help=f"folder of the scripts ({FOLDER})")
    parser.add_argument("--json", action="store_true", help="prints the facts as JSON")
    given = parser.parse_args(arguments)
    found = bugs(given.bugs)
    if not found:
        refuse("rematch report", f"no scripts in {given.bugs}: run it in a checkout, or name the folder by --bugs")
    if given.name is None:
        try:
            listed = [read(file) for file in found.values()]
        except ValueError as error:
            refuse("rematch report", sentence(error))
        if given.json:
            return print(json.dumps([asdict(bug) | {"state": bug.state} for bug in listed], indent=2))
        return print("\n".join(f"{bug.name}\n    {bug.title}\n    {bug.state}" for bug in listed))
    if given.name not in found:
        refuse("rematch report", f"no script {given.name} in {given.bugs}; without a name, all are listed")
    bug, script = read(found[given.name]), found[given.name].read_text(encoding="utf-8")
    dated = dates(releases(given.bugs, bug.name), tells_errors=True)
    shown, output = run(sys.executable, found[given.name])
    if shown not in ("wrong", "right"):
        advice = f". {PYTHON}" if "No module named" in shown else ""
        refuse("rematch report", f"{given.name} says nothing with this Python: {shown}{advice}")
    if given.json:
        shows = {
            "output": output,
            "shows": shown == "wrong",
            "here": _versions(bug),
            "state": bug.state,
            "releases": dated,
        }
        print(json.dumps(asdict(bug) | shows, indent=2))
    else:
        print(_told(bug, _code(script), output, _versions(bug), dated))
    if shown == "right":
        print(f"rematch report: {given.name} does not show here: mended in this version?", file=sys.stderr)
        raise SystemExit(1)

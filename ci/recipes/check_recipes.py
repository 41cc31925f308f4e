"""Checks the recipes, the action and the workflow of releases: each is what its CI system reads, every script that is
named is in this checkout and takes the options that it is given, and every command is a shell's.
"""
import re
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ("ci/test", "ci/check", "ci/compare", "rematch-*.json", "--keep-going", "--markdown")
# A consumer's recipe has the commands of the page that it is of.
PAGE = (ROOT / "ci/consumer/README.md").read_text()
COMMANDS = re.findall(r"(?m)-DREMATCH.*=OFF$|--target \S+|--component \S+(?= --prefix)", PAGE)
THEIRS = ("third_party/rematch/ci/setup", "--junit report.xml", "rematch-*.json", *COMMANDS)
MODEL = ("./third_party/rematch", "pytest --rematch-model", "rematch plan")
SAY = {"github-actions.yml": OURS, "gitlab-ci.yml": (*OURS, "junit:"),
       "project-github-actions.yml": THEIRS, "project-gitlab-ci.yml": (*THEIRS, "junit: report.xml"),
       "model-gitlab-ci.yml": (*MODEL, "junit: report.xml")}
SCRIPTS = ("run", "script", "before_script", "after_script")
faults = []


def need(condition, text):
    if not condition:
        faults.append(text)


def commands_of(node):
    """Every command, wherever it stands."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in SCRIPTS:
                yield from [value] if isinstance(value, str) else value
            else:
                yield from commands_of(value)
    elif isinstance(node, list):
        for item in node:
            yield from commands_of(item)


def check_command(where, command):
    shell = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
    need(shell.returncode == 0, f"{where}: no shell command: {shell.stderr.strip()}")
    # Text from outside reaches a shell through the environment alone.
    need("${{" not in command, f"{where}: an expression in a command: {command}")
    for script, arguments in re.findall(r"(?<!\S)(ci/[a-z_/-]+)((?: (?![|>&])\S+)*)", command):
        path = ROOT / script
        need(path.is_file() and path.stat().st_mode & 0o111, f"{where}: no script {script}")
        if not path.is_file() or script == "ci/check":
            continue
        for option in re.findall(r"--[a-z-]+", arguments):
            need(option in path.read_text(), f"{where}: {script} has no {option}")


def check_schema(path, schema, *more):
    checked = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *more, path],
                             capture_output=True, text=True)
    need(checked.returncode == 0, checked.stdout + checked.stderr)


def main():
    paths = sorted(Path(__file__).parent.glob("*.yml"))
    need({p.name for p in paths} == set(SAY), f"recipes: {paths}")
    for path in paths:
        recipe = YAML(typ="safe").load(path)
        if "github" in path.name:
            check_schema(path, "vendor.github-workflows")
            # A model is judged the same on every day; hunts draw other cases every night.
            nightly = set() if path.name.startswith("model-") else {"schedule"}
            need({"pull_request", "push", *nightly} == set(recipe["on"]), f"{path.name}: triggers")
            need("permissions" in recipe, f"{path.name}: permissions")
            jobs = recipe["jobs"]
        else:
            check_schema(path, "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
            jobs = {name: job for name, job in recipe.items() if name not in ("default", "variables")}
            need(all("rules" in job for job in jobs.values()), f"{path.name}: rules of every job")
        for name, job in jobs.items():
            needed = job.get("needs", [])
            needed = [needed] if isinstance(needed, str) else needed
            need(set(needed) <= set(jobs), f"{path.name}: {name} needs {needed}")
        for command in commands_of(recipe):
            check_command(path.name, command)
        for part in SAY[path.name]:
            need(part in path.read_text(), f"{path.name}: no {part}")
    # What forges run of this checkout itself.
    action, release = ROOT / "ci/action/action.yml", ROOT / ".github/workflows/release.yml"
    for path, schema in ((action, "actions"), (release, "workflows")):
        check_schema(path, f"vendor.github-{schema}")
        for command in commands_of(YAML(typ="safe").load(path)):
            check_command(path.name, command)
    print("\n".join(faults))
    return 1 if faults else 0


sys.exit(main())

"""Checks the recipes: YAML that a CI system would read, in which every script that is named is in
this checkout, takes the options it is given, and every command is a shell's. Exit status 4: skipped,
for there is no PyYAML.
"""
import re
import subprocess
import sys
from pathlib import Path

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(4)

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ("ci/test", "ci/check", "ci/compare", "rematch-*.json", "--shard", "rematch merge", "--markdown")
# A consumer's recipe has the commands of the page that it is of.
PAGE = (ROOT / "ci/consumer/README.md").read_text()
COMMANDS = re.findall(r"(?m)-DREMATCH.*=OFF$|--target \S+|--component \S+(?= --prefix)", PAGE)
THEIRS = ("third_party/rematch/ci/setup", "--junit report.xml", "rematch-*.json", *COMMANDS)
SAY = {"github-actions.yml": OURS, "gitlab-ci.yml": (*OURS, "junit:"),
       "project-github-actions.yml": THEIRS, "project-gitlab-ci.yml": (*THEIRS, "junit: report.xml")}
faults = []


def need(condition, text):
    if not condition:
        faults.append(text)


class Strict(yaml.SafeLoader):
    """No key twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        need(len(keys) == len(set(map(str, keys))), f"{node.start_mark}: a key twice: {keys}")
        return super().construct_mapping(node, deep)


def check_command(where, command):
    shell = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
    need(shell.returncode == 0, f"{where}: no shell command: {shell.stderr.strip()}")
    for script, arguments in re.findall(r"(?<!\S)(ci/[a-z_-]+)((?: (?![|>&])\S+)*)", command):
        path = ROOT / script
        need(path.is_file() and path.stat().st_mode & 0o111, f"{where}: no script {script}")
        if not path.is_file() or script == "ci/check":
            continue
        for option in re.findall(r"--[a-z-]+", arguments):
            need(option in path.read_text(), f"{where}: {script} has no {option}")


def check_github(name, recipe):
    # YAML 1.1 reads the key "on" as true.
    need(set(recipe) == {"name", True, "permissions", "jobs"}, f"{name}: keys {list(recipe)}")
    need({"pull_request", "schedule", "push"} == set(recipe.get(True, {})), f"{name}: triggers")
    for job_name, job in recipe["jobs"].items():
        where = f"{name}: {job_name}"
        known = {"if", "runs-on", "timeout-minutes", "permissions", "env", "steps", "strategy", "needs"}
        need(job.get("needs", job_name) in recipe["jobs"], f"{where}: needs a job")
        need(set(job) <= known, f"{where}: unknown keys {set(job) - known}")
        need("runs-on" in job and job.get("steps"), f"{where}: runs-on and steps")
        for step in job["steps"]:
            known = {"name", "id", "if", "uses", "with", "run", "env", "continue-on-error"}
            need(set(step) <= known, f"{where}: unknown keys {set(step) - known}")
            need(("uses" in step) != ("run" in step), f"{where}: a step runs or uses: {step}")
            if "run" in step:
                # What comes from outside reaches a shell through the environment alone.
                need("${{" not in step["run"], f"{where}: an expression in a command: {step['run']}")
                check_command(where, step["run"])


def check_gitlab(name, recipe):
    for job_name, job in recipe.items():
        if job_name == "variables":
            continue
        where = f"{name}: {job_name}"
        known = {"rules", "timeout", "script", "after_script", "artifacts", "allow_failure", "image",
                 "before_script", "parallel", "needs", "cache"}
        need(all(n in recipe for n in job.get("needs", [])), f"{where}: needs a job")
        need(set(job) <= known, f"{where}: unknown keys {set(job) - known}")
        need(job_name == "default" or ("script" in job and "rules" in job), f"{where}: script, rules")
        for part in ("before_script", "script", "after_script"):
            for command in job.get(part, []):
                need(isinstance(command, str), f"{where}: a command is text, got {command}")
                check_command(where, str(command))


def check_kubernetes(job):
    spec = job["spec"]
    need((job["apiVersion"], job["kind"]) == ("batch/v1", "Job"), "kubernetes.yml: a Job")
    need(spec["completionMode"] == "Indexed", "kubernetes.yml: completionMode")
    (container,) = spec["template"]["spec"]["containers"]
    (command,) = container["args"]
    check_command("kubernetes.yml", command)
    need(f"))/{spec['completions']}\"" in command, "kubernetes.yml: as many parts as completions")
    need("--resume" in command, "kubernetes.yml: a pod that is started again goes on")


def main():
    recipes = {p.name: p for p in sorted(Path(__file__).parent.glob("*.yml"))}
    need(set(recipes) == {"kubernetes.yml", *SAY}, f"recipes: {list(recipes)}")
    check_kubernetes(yaml.load(recipes.pop("kubernetes.yml").read_text(), Strict))
    for name, path in recipes.items():
        text = path.read_text()
        (check_github if "github" in name else check_gitlab)(name, yaml.load(text, Strict))
        for part in SAY[name]:
            need(part in text, f"{name}: no {part}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())

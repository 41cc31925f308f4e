"""Every script of ci/ and ci/maintain/ answers --help at once, whatever is installed, and leaves the checkout alone."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 20
# Their arguments are those of the program that they run.
PASS_ON = {"conform", "test-gpu", "hunt"}


def run(script, argument):
    # Nothing that could be called to install something is found.
    tools = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([script, argument], cwd="/", env=tools, capture_output=True, text=True,
                          timeout=LONGEST)


def main():
    faults = []
    folders = ROOT / "ci", ROOT / "ci" / "maintain"
    scripts = [p for folder in folders for p in sorted(folder.iterdir()) if p.is_file() and os.access(p, os.X_OK)]
    for script in scripts:
        told = run(script, "--help")
        name = script.relative_to(ROOT).as_posix()
        if told.returncode != 0 or name not in told.stdout:
            faults.append(f"{name} --help: {told.returncode}, {told.stdout}{told.stderr}")
        if script.name in PASS_ON:
            continue
        refused = run(script, "--frobnicate")
        if refused.returncode != 2 or "--frobnicate" not in refused.stderr:
            faults.append(f"{name} --frobnicate: {refused.returncode}, {refused.stderr}")
    print("\n".join(faults) or f"{len(scripts)} scripts")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Parts of a build: the PTX in its objects, the commands that made them, and the tests that launch kernels."""
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """Says what is not there, and how to get it."""


class Failure(Exception):
    """Says what went wrong outside of kernels."""


def said(text, since=[time.monotonic()]):  # noqa: B006
    """Progress, for whoever has waited for two seconds."""
    if time.monotonic() - since[0] > 2:
        print(f"ci/maintain/ptx: {text}", file=sys.stderr, flush=True)
        since[0] = time.monotonic()


def run(command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise Failure(f"{shlex.join(str(c) for c in command)} ended with {done.returncode}:\n"
                      f"{(done.stderr or done.stdout)[-1000:]}")
    return done.stdout


class Build:
    def __init__(self, folder):
        self.folder = folder.resolve()
        commands = self.folder / "compile_commands.json"
        if not commands.exists():
            raise Missing(f"there is no build in {folder}: ci/build release makes one")
        #: Name of a source, such as "moe" -> (file, arguments of nvcc).
        self.sources = {}
        for entry in json.loads(commands.read_text()):
            if entry["file"].endswith(".cu") and "/engine/cuda/" in entry["file"]:
                self.sources[Path(entry["file"]).stem] = (Path(entry["file"]), shlex.split(entry["command"]),
                                                          Path(entry["directory"]))
        if not self.sources:
            raise Missing(f"the build in {folder} has no CUDA")

    def cached(self, name):
        found = re.search(rf"^{name}:\w+=(.*)$", (self.folder / "CMakeCache.txt").read_text(), re.M)
        return found[1] if found and not found[1].endswith("NOTFOUND") else ""

    def object_of(self, name):
        _, command, directory = self.sources[name]
        return directory / command[command.index("-o") + 1]

    def ptx(self, name, made=None):
        """The PTX in the object of a source, which a card that it has no machine code for would run."""
        tool = self.cached("REMATCH_CUOBJDUMP")
        if not tool:
            raise Missing("no cuobjdump was found; ci/setup installs it")
        made = made or self.object_of(name)
        if not made.exists():
            raise Failure(f"{made} has not been built")
        parts = run([tool, "-ptx", made]).split("Fatbin ptx code:")
        if len(parts) != 2:
            raise Failure(f"{made} has PTX for {len(parts) - 1} architectures, expected 1")
        return ".version" + parts[1].split(".version", 1)[1].split("\nFatbin ", 1)[0]

    def record(self, folder, tests, program=None, seconds=None):
        """Runs tests on the emulated device, which writes their launches; returns its exit status and output."""
        program = program or self.folder / "emulated" / "gpu_tests"
        if not program.exists():
            raise Missing(f"{program} has not been built: ci/build release emulated_gpu_tests")
        said("running the tests on the emulated device")
        variables = {**os.environ, "REMATCH_EMULATOR_TRACE": str(folder), "REMATCH_EMULATOR_LOCK": "off"}
        done = subprocess.run([str(program), *tests], env=variables, capture_output=True, text=True, errors="replace",
                              check=False, timeout=seconds)
        return done.returncode, done.stdout + done.stderr

"""Plants faults in kernels, and says which checks find them: the tests on the emulated device, the PTX, the machine code."""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ptx import judge
from ptx.build import ROOT, Failure, run, said
from ptx.planted import FAULTS

EMULATOR = "engine/emulator"
#: The tests of a source, where no file of tests has its name.
TESTS = {"product": '"a linear layer on the engine*","an own product*"',
         "conv2d_direct": '"convolutions whose sums are exact*","convolutions on the device*"'}
#: Longer than any test takes.
SECONDS = 300
PROMISES = r"fused multiply-adds|may be fused|flush denormals|flushes denormals|of stack a thread"
COLUMNS = ("tests", "own", "sound", "machine")


def without(command, *patterns):
    """A command without the arguments that match."""
    return [a for a in command if not any(re.search(p, a) for p in patterns)]


def replaced(command, old, new):
    return [str(new) if a == str(old) else a for a in command]


class Planted:
    """A fault in a folder of its own, built as far as the checks need."""

    def __init__(self, build, fault, folder):
        self.build, self.fault, self.folder = build, fault, folder
        self.sources = folder / "sources"
        changed = self.sources / fault.file
        changed.parent.mkdir(parents=True)
        changed.write_text(fault.applied((ROOT / fault.file).read_text()))
        self.file, self.command, self.directory = build.sources[fault.source]
        relative = self.file.relative_to(build.sources[fault.source][0].parents[3])
        self.own = self.sources / relative if str(relative) == fault.file else self.file
        self.object = folder / f"{fault.source}.cu.o"

    def compile(self):
        """nvcc's object."""
        command = without(self.command, "^-Werror", "^-Xcompiler=-Werror")
        out = command[command.index("-o") + 1]
        at = next(k for k, a in enumerate(command) if a.endswith("nvcc"))
        command[at + 1:at + 1] = [f"-I{self.sources}"]
        run(replaced(replaced(command, self.file, self.own), out, self.object), cwd=self.directory)

    def rewrite(self, file, to):
        to.parent.mkdir(parents=True, exist_ok=True)
        run(["cmake", "-D", f"FROM={file}", "-D", f"TO={to}", "-P", ROOT / EMULATOR / "rewrite.cmake"])

    def program(self):
        """gpu_tests on the emulated device, with this source compiled again."""
        rewritten = self.folder / "rewritten"
        name = f"{self.fault.source}.cu.cpp"
        source = rewritten / "engine" / "cuda" / "kernels" / name
        self.rewrite(self.own, source)
        if self.own == self.file:
            self.rewrite(self.sources / self.fault.file, rewritten / self.fault.file)
        entries = json.loads((self.build.folder / "compile_commands.json").read_text())
        entry = next(e for e in entries if e["file"].endswith(f"/{name}"))
        command = shlex.split(entry["command"])
        out = command[command.index("-o") + 1]
        # Without the precompiled header, which is for other flags.
        pch = command.index("-include")
        command[pch:pch + 2] = ["-include", str(ROOT / EMULATOR / "kernel.h")]
        command = without(command, "^-Werror", "^-Winvalid-pch")
        command[1:1] = [f"-I{rewritten}"]
        made = self.folder / "emulated.o"
        run([*replaced(replaced(command, entry["file"], source), out, made), "-O1", "-w"], cwd=entry["directory"])
        link = run(["ninja", "-t", "commands", "emulated/gpu_tests"], cwd=self.build.folder).splitlines()[-1]
        program = self.folder / "gpu_tests"
        # First, because linkers take the first of what several objects have.
        link = link.replace(f" {out} ", " ").replace("-o emulated/gpu_tests", f"-o {program}")
        link = re.sub(r" (\S+\.o) ", rf" {made} \1 ", link, count=1)
        run(["sh", "-c", link], cwd=self.build.folder)
        return program


def ptx_finds(rows):
    """Outcomes of launches other than equal, each with a sentence."""
    kinds = {}
    for row in rows:
        for finding in row["findings"]:
            kinds.setdefault(finding["outcome"], finding["why"])
    return kinds


class Campaign:
    def __init__(self, build, arguments, scratch):
        self.build, self.arguments, self.scratch = build, arguments, scratch
        self.pool = concurrent.futures.ProcessPoolExecutor(arguments.jobs)
        self.golden = build.folder / "bin" / "golden_tests"
        self.library = next(build.folder.glob("**/librematch_engine.a"), None)
        if not self.golden.exists() or self.library is None:
            raise Failure("golden_tests and rematch_engine have not been built")

    def run_tests(self, program, folder, sources):
        """(whether tests fail, launches)."""
        folder.mkdir()
        spec = ",".join(TESTS.get(source, f"[#{source}_test]") for source in sorted(sources))
        try:
            status, output = self.build.record(folder, ["-#", spec], program, SECONDS)
        except subprocess.TimeoutExpired:
            return "hang", judge.recorded(folder)
        if "No test cases matched" in output:
            raise Failure(f"no test is in {spec}")
        return "fail" if status else "", judge.recorded(folder)

    def ptx(self, text, source, launches):
        waiting = []
        for name, kernel in judge.kernels_of(text).items():
            files = judge.spread(launches.get(judge.key(source, name), []), self.arguments.most)
            waiting.append(self.pool.submit(judge.judged, source, kernel, files))
        return ptx_finds([w.result() for w in waiting])

    def machine_code(self, planted):
        library = planted.folder / "engine.a"
        shutil.copy(self.library, library)
        run(["ar", "r", library, planted.object])
        variables = {**os.environ, "REMATCH_MACHINE_CODE_OF": str(library)}
        done = subprocess.run([str(self.golden), "machine code keeps*"], env=variables, capture_output=True, text=True,
                              check=False)
        if done.returncode not in (0, 4) and not re.search(PROMISES, done.stdout):
            raise Failure(f"golden_tests failed:\n{done.stdout[-2000:]}")
        return "" if done.returncode in (0, 4) else "promise"

    def found(self, fault, sound):
        folder = self.scratch / re.sub(r"\W", "_", fault.name)
        planted = Planted(self.build, fault, folder)
        planted.compile()
        text = self.build.ptx(fault.source, planted.object)
        tests, own = self.run_tests(planted.program(), folder / "launches", [fault.source])
        result = {"name": fault.name, "kind": fault.kind, "source": fault.source, "file": fault.file,
                  "why_not": fault.why_not, "tests": tests, "own": self.ptx(text, fault.source, own),
                  "sound": self.ptx(text, fault.source, sound), "machine": self.machine_code(planted)}
        shutil.rmtree(folder)
        return result


def cell(value):
    return (" and ".join(value) if isinstance(value, dict) else value) or "-"


def table(results):
    lines = ["| fault | kind | in | tests | PTX, its own launches | PTX, sound launches | machine code |",
             "|---|---|---|---|---|---|---|"]
    lines += [f"| {r['name']} | {r['kind']} | `{Path(r['file']).name}` | " + " | ".join(cell(r[c]) for c in COLUMNS) + " |"
              for r in results]
    alone = [r["name"] for r in results if r["own"] and not r["tests"] and not r["machine"]]
    missed = [r["name"] + (f" ({r['why_not']})" if r["why_not"] else "") for r in results if not any(r[c] for c in COLUMNS)]
    counts = ", ".join(f"{sum(bool(r[c]) for r in results)} by {what}" for c, what in zip(
        COLUMNS[:3], ("the tests", "the PTX on its own launches", "the PTX on sound launches")))
    promised = sum(bool(r["machine"]) for r in results)
    lines += ["", f"{len(results)} faults: {counts}, {promised} by a promise of machine code.",
              f"Found on their own launches by the PTX alone: {'; '.join(alone) or 'none'}.",
              f"Found by nothing: {'; '.join(missed) or 'none'}."]
    return lines


def main(build, arguments):
    unknown = set(arguments.faults) - {f.name for f in FAULTS}
    if unknown:
        raise Failure(f"no fault is called {', '.join(sorted(unknown))}; known: {'; '.join(f.name for f in FAULTS)}")
    chosen = [f for f in FAULTS if not arguments.faults or f.name in arguments.faults]
    with tempfile.TemporaryDirectory() as scratch:
        campaign = Campaign(build, arguments, Path(scratch))
        failed, sound = campaign.run_tests(None, Path(scratch) / "sound", {f.source for f in chosen})
        if failed:
            raise Failure("the tests fail without a fault")
        results = []
        with campaign.pool, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as threads:
            for k, result in enumerate(threads.map(lambda f: campaign.found(f, sound), chosen)):
                results.append(result)
                said(f"{k + 1} of {len(chosen)} faults")
    if arguments.json:
        print(json.dumps({"format": 1, "faults": results}))
    else:
        print("\n".join(table(results)))
    return 0

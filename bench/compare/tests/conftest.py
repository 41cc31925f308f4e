"""Recorded inputs, faked ones, and reports that were approved."""

import json
import os
import subprocess
import sys
from pathlib import Path

COMPARE = Path(__file__).resolve().parent.parent
GOLDEN = COMPARE / "golden"
sys.path.insert(0, str(COMPARE))
from rematch_compare import options, sides  # noqa: E402
from rematch_compare.compare import compare  # noqa: E402


def run(command, folder=None, **variables):
    """Exit status, standard output, standard error."""
    environment = {**os.environ, "COLUMNS": "100", **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def run_compare(*arguments, **variables):
    return run([COMPARE / "rematch-compare", *map(str, arguments)], **variables)


def compared(base, new, *arguments):
    o = options.parse([str(base), str(new), *arguments])
    return compare(sides.read_sides([str(base)], [str(new)]), o)


def write(path, benchmarks, commit="1" * 40, cpu="A", **context):
    """A result file; `benchmarks`: by name, fields that differ from those of 1 ms."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = {"rematch_format": "1", "rematch_commit": commit, "rematch_cpu": cpu}
    entry = {"run_type": "iteration", "real_time": 1, "cpu_time": 1, "time_unit": "ms"}
    entries = [{"name": name, **entry, **fields} for name, fields in benchmarks.items()]
    content = {"context": {"date": "2026-01-02", **ours, **context}, "benchmarks": entries}
    path.write_text(json.dumps(content))
    return path


def write_pairs(folder, factor, pairs, peak=1000, cpu="A"):
    """Folders in which benchmark "a" takes `factor` of its time on the new side."""
    for i in range(pairs):
        before = {"real_time": 10 + 0.01 * (i * 7 % 5), "peak_bytes": 1000}
        after = {"real_time": (10 + 0.01 * (i * 11 % 5)) * factor, "peak_bytes": peak}
        write(folder / "base" / f"{i:02}.json", {"a": before})
        write(folder / "new" / f"{i:02}.json", {"a": after}, cpu=cpu)
    return folder / "base", folder / "new"


def write_recorded(folder):
    """The results of which reports are approved: 16 files a side, with the times that they hold."""
    recorded = json.loads((GOLDEN / "inputs" / "results.json").read_text())
    for side, content in recorded.items():
        (folder / side).mkdir()
        for i in range(16):
            entries = [
                {**b["entry"], "run_type": "iteration", "time_unit": "ms"}
                | {"repetition_index": n, "real_time": ms, "cpu_time": 0.75 * ms}
                for b in content["benchmarks"]
                for n, ms in enumerate(b["real_time"][i])
            ]
            text = json.dumps({"context": content["context"], "benchmarks": entries})
            (folder / side / f"{i:02}.json").write_text(text)
    return folder / "base", folder / "new"


def assert_approved(name, got):
    golden = GOLDEN / name
    if os.environ.get("REMATCH_APPROVE") == "1":
        golden.write_text(got)
    expected = golden.read_text()
    assert got == expected, f"{name} differs; to approve all: REMATCH_APPROVE=1 ctest ... -L bench"

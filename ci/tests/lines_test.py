"""No room of the tree, nor the whole, holds more lines or files than golden/approvals/lines.json allows.

A room may exceed its limit by 1 % or two files, so that lines can move; the whole may not exceed its own at all. `--count`
writes the counts that are below their limits where golden/approve finds them: it lowers limits and raises none. Whoever
must raise one edits the number by hand, in a commit of its own that says what went in return.
"""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APPROVED = ROOT / "golden/approvals/lines.json"
RECEIVED = APPROVED.with_suffix(".received.json")
COUNT = "python3 ci/tests/lines_test.py --count"
WHOLE = "whole"
ROOMS = ("properties/python", "properties", "engine", "scenarios", "golden", "bench", "ci")


def room(path):
    return next((r for r in ROOMS if path.startswith(r + "/")), "root")


def files_of(root):
    """Files that git tracks or would add; in a tree without git, all outside of build/ and of hidden folders."""
    git = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(git, capture_output=True, text=True) if (root / ".git").exists() else None
    if found and found.returncode == 0:
        paths = {p for p in found.stdout.split("\0") if p}
    else:
        paths = {p.relative_to(root).as_posix() for p in root.rglob("*")}
        paths = {p for p in paths if not re.search(r"^build/|(^|/)(\.|__pycache__/)|\.received\.", p)}
    return sorted(p for p in map(root.joinpath, paths) if p.is_file() and not p.is_symlink())


def count(root):
    """Lines and files by room, and of the whole; pictures and other binary files have no lines."""
    counts = {}
    for path in files_of(root):
        text = path.read_bytes()
        for name in (room(path.relative_to(root).as_posix()), WHOLE):
            held = counts.setdefault(name, {"lines": 0, "files": 0})
            held["lines"] += 0 if b"\0" in text else text.count(b"\n")
            held["files"] += 1
    return counts


def exceeded(counts, limits):
    """A sentence for each room that holds more than it may."""
    return [f"{name}: {held[unit]:,} {unit} counted, {limit:,} allowed"
            for name, held in sorted(counts.items()) for unit in ("lines", "files")
            for limit in [limits.get(name, {}).get(unit, 0)]
            if held[unit] > (limit if name == WHOLE else max(1.01 * limit, limit + 2 if unit == "files" else 0))]


def lowered(counts, limits):
    """The limits, lower where less is counted."""
    return {name: {unit: min(n, counts.get(name, {}).get(unit, 0)) for unit, n in held.items()}
            for name, held in limits.items()}


def write(limits):
    rows = [f"{json.dumps(name)}: {json.dumps(held)}" for name, held in sorted(limits.items())]
    command = f"{COUNT}; golden/approve"
    RECEIVED.write_text(f'{{\n"format": 1,\n"command": "{command}",\n"entries": {{\n' + ",\n".join(rows) + "\n}\n}\n")


class Lines(unittest.TestCase):
    limits = {"engine": {"lines": 1000, "files": 200}, WHOLE: {"lines": 5000, "files": 900}}

    def test_slightly_more_passes_in_a_room_and_so_does_less(self):
        self.assertEqual(exceeded({"engine": {"lines": 1010, "files": 202}}, self.limits), [])

    def test_more_than_that_is_found_and_in_the_whole_any(self):
        more = {"engine": {"lines": 1011, "files": 203}, "attic": {"lines": 5, "files": 1},
                WHOLE: {"lines": 5001, "files": 900}}
        self.assertEqual(exceeded(more, self.limits), [
            "attic: 5 lines counted, 0 allowed",
            "engine: 1,011 lines counted, 1,000 allowed", "engine: 203 files counted, 200 allowed",
            "whole: 5,001 lines counted, 5,000 allowed"])

    def test_a_limit_is_lowered_and_never_raised(self):
        counts = {"engine": {"lines": 1200, "files": 150}, "attic": {"lines": 5, "files": 1},
                  WHOLE: {"lines": 4000, "files": 901}}
        self.assertEqual(lowered(counts, self.limits), {
            "engine": {"lines": 1000, "files": 150}, WHOLE: {"lines": 4000, "files": 900}})

    def test_no_room_holds_more_than_it_may(self):
        counts = count(ROOT)
        self.assertGreater(counts["engine"]["files"], 100)
        if errors := exceeded(counts, json.loads(APPROVED.read_text())["entries"]):
            self.fail("\n".join(errors) + "\nA change that adds a mechanism removes the one that it replaces. A limit is "
                      "raised by hand, in a commit of its own that says what went in return.")


if __name__ == "__main__":
    if sys.argv[1:] == ["--count"]:
        write(lowered(count(ROOT), json.loads(APPROVED.read_text())["entries"]))
        print(f"wrote {RECEIVED.relative_to(ROOT)}; to lower the limits: golden/approve")
    else:
        unittest.main()

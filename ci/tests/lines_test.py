"""No room of the tree holds more lines or files than golden/approvals/lines.json approves.

A room may exceed its approved counts by 1 % or two files, so that small changes need no approval. A failing test writes
the new counts beside the approved ones, where golden/approve finds them; `--count` writes them at any time, to lower
what is approved.
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
    """Lines and files by room; pictures and other binary files have no lines."""
    counts = {}
    for path in files_of(root):
        text = path.read_bytes()
        held = counts.setdefault(room(path.relative_to(root).as_posix()), {"lines": 0, "files": 0})
        held["lines"] += 0 if b"\0" in text else text.count(b"\n")
        held["files"] += 1
    return counts


def exceeded(counts, approved):
    """A sentence for each room that holds more than is approved for it."""
    return [f"{name}: {held[unit]:,} {unit} counted, {limit:,} approved"
            for name, held in sorted(counts.items()) for unit in ("lines", "files")
            for limit in [approved.get(name, {}).get(unit, 0)]
            if held[unit] > max(1.01 * limit, limit + 2 if unit == "files" else 0)]


def write(counts):
    rows = [f"{json.dumps(name)}: {json.dumps(held)}" for name, held in sorted(counts.items())]
    command = f"{COUNT}; golden/approve"
    RECEIVED.write_text(f'{{\n"format": 1,\n"command": "{command}",\n"entries": {{\n' + ",\n".join(rows) + "\n}\n}\n")


class Lines(unittest.TestCase):
    approved = {"engine": {"lines": 1000, "files": 200}}

    def test_slightly_more_passes_and_so_does_less(self):
        self.assertEqual(exceeded({"engine": {"lines": 1010, "files": 202}}, self.approved), [])

    def test_more_than_that_is_found(self):
        more = {"engine": {"lines": 1011, "files": 203}, "attic": {"lines": 5, "files": 1}}
        self.assertEqual(exceeded(more, self.approved), [
            "attic: 5 lines counted, 0 approved", "engine: 1,011 lines counted, 1,000 approved",
            "engine: 203 files counted, 200 approved"])

    def test_no_room_holds_more_than_approved(self):
        counts = count(ROOT)
        self.assertGreater(counts["engine"]["files"], 100)
        if errors := exceeded(counts, json.loads(APPROVED.read_text())["entries"]):
            write(counts)
            self.fail("\n".join(errors) + "\nA change that adds a mechanism removes the one that it replaces, and its "
                      "commit message names it. To approve the new counts: golden/approve")
        RECEIVED.unlink(missing_ok=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--count"]:
        write(count(ROOT))
        print(f"wrote {RECEIVED.relative_to(ROOT)}; to approve it: golden/approve")
    else:
        unittest.main()

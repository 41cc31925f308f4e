"""Campaigns of mutants, for mutate and mutate_torch: mutants, the choice of some, who judges them, the report."""
import argparse
import collections
import concurrent.futures
import dataclasses
import difflib
import hashlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "ci" / "maintain"))
import environment  # noqa: E402
from environment import Failure  # noqa: E402

PROGRAM = f"ci/maintain/{Path(sys.argv[0]).name}"
stopping = threading.Event()


@dataclasses.dataclass
class Mutant:
    """`text[begin:end]` of a source becomes `new`."""
    #: The file, or the function of a file that is the only one.
    place: str
    kind: str
    line: int
    #: The lines that change, and the line of code before, which tells apart those that read the same.
    was: str
    becomes: str
    after: str
    begin: int
    end: int
    new: str
    id: str = ""
    #: "invalid", "equivalent", "caught" or "survived"; empty until it is judged.
    outcome: str = ""
    #: The stage or law that caught it, or why it is equivalent.
    by: str = ""

    def applied(self, text):
        return text[:self.begin] + self.new + text[self.end:]

    def told(self):
        return f"{self.id} {self.place}:{self.line}: {self.kind}: {self.was} -> {self.becomes}"


def mutants_of(text, changes):
    """A list of `changes`, which are (place, begin, end, new, kind), as mutants with ids of their own,
    line by line."""
    found = {}
    for place, begin, end, new, kind in changes:
        start = text.rfind("\n", 0, begin) + 1
        stop = (text + "\n").find("\n", end)
        before = text[:start].rstrip().rpartition("\n")[2].strip()
        mutant = Mutant(place, kind, text.count("\n", 0, begin) + 1, squeezed(text[start:stop]),
                        squeezed(text[start:begin] + new + text[end:stop]), before, begin, end, new)
        mutant.id = "\n".join((place, kind, mutant.after, mutant.was, mutant.becomes))
        # Again for the same words further down.
        while len(mutant.id) != 10 or mutant.id in found:
            mutant.id = hashlib.sha256(mutant.id.encode()).hexdigest()[:10]
        found[mutant.id] = mutant
    return sorted(found.values(), key=lambda m: m.line)


def squeezed(text):
    return " ".join(text.split())


class Equivalents:
    """Mutants that no test can notice: a file of lines `PLACE: WAS -> BECOMES`, or `PLACE` for all in a
    function, below a comment that says why."""

    def __init__(self, name):
        self.path = Path(__file__).with_name(name)
        self.reasons = {}
        why = ""
        for line in self.path.read_text().splitlines():
            if line.startswith("# "):
                why = line[2:]
            elif line:
                self.reasons[line] = why
        self.unused = set(self.reasons)

    def mark(self, mutants):
        """Gives those that are listed their outcome."""
        for m in mutants:
            scopes = m.place.split(".")
            keys = [f"{m.place}: {m.was} -> {m.becomes}",
                    *(".".join(scopes[:i + 1]) for i in range(len(scopes)))]
            for key in filter(self.reasons.get, keys):
                self.unused.discard(key)
                m.outcome, m.by = "equivalent", self.reasons[key]


def say(text):
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def parser(description):
    p = argparse.ArgumentParser(prog=PROGRAM, description=description,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sample", type=int, metavar="N", help="this many, drawn at random (default: all)")
    p.add_argument("--seed", type=int, default=1, metavar="S", help="of what is drawn (default: 1)")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at a time (default: 1)")
    p.add_argument("--only", action="append", metavar="ID", help="this one alone, again for more")
    p.add_argument("--list", action="store_true", help="show the mutants and judge none")
    p.add_argument("--json", action="store_true", help="the report, or the list, as JSON")
    return p


def parse(p):
    options = p.parse_args()
    if options.jobs < 1 or (options.sample is not None and options.sample < 1):
        p.error("--jobs and --sample are at least 1")
    return options


def choose(mutants, options):
    """Mutants that --only and --sample leave."""
    if missing := set(options.only or []) - {m.id for m in mutants}:
        raise Failure(f"--only {' '.join(sorted(missing))}: not among the mutants of this choice")
    chosen = [m for m in mutants if not options.only or m.id in options.only]
    if options.sample is not None and options.sample < len(chosen):
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    return chosen


def show(mutants, options):
    """Prints the list of --list."""
    if options.json:
        print(json.dumps([dataclasses.asdict(m) for m in mutants], indent=1))
    for m in mutants if not options.json else []:
        print(f"{m.outcome:11}{m.told()}" if m.outcome else m.told())


def run(command, log, limit=None, ends=None, **options):
    """The exit status; None past the limit, in seconds, and where the command was ended for what it printed."""
    with open(log, "wb") as output:
        # Its own session: Ctrl-C is for this script, and children of a child end with it.
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                 start_new_session=True, **options)
        deadline = time.monotonic() + (limit or float("inf"))
        try:
            while True:
                try:
                    return child.wait(0.2)
                except subprocess.TimeoutExpired:
                    if stopping.is_set():
                        raise KeyboardInterrupt from None
                    printed = ends and Path(log).read_text(errors="replace")
                    if time.monotonic() > deadline or (printed and ends.search(printed)):
                        return None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def judge_all(mutants, judges):
    """Each judge takes one mutant at a time. False after a Ctrl-C: those that are left have no outcome."""
    free = queue.SimpleQueue()
    for judge in judges:
        free.put(judge)
    start = time.monotonic()
    done = 0

    def one(mutant):
        if stopping.is_set():
            return False
        judge = free.get()
        try:
            mutant.outcome, mutant.by = judge.judge(mutant)
        except KeyboardInterrupt:
            return False
        finally:
            free.put(judge)
        return True

    with concurrent.futures.ThreadPoolExecutor(len(judges)) as pool:
        try:
            running = {pool.submit(one, m): m for m in mutants}
            for future in concurrent.futures.as_completed(running):
                if future.result():
                    done += 1
                    left = (time.monotonic() - start) / done * (len(mutants) - done) / 60
                    m = running[future]
                    by = f" by {squeezed(m.by)[:100]}" if m.by else ""
                    say(f"{done}/{len(mutants)}, {left:.0f} min left: {m.outcome}{by}: {m.told()[:250]}")
            return True
        except KeyboardInterrupt:
            if done == 0:
                raise
            return False
        finally:
            stopping.set()


def report(mutants, original, **more):
    """The report as JSON; `original` gives the source of a mutant."""
    judged = [m for m in mutants if m.outcome]
    outcomes = collections.Counter(m.outcome for m in judged)
    valid = outcomes["caught"] + outcomes["survived"]
    by = collections.Counter(m.by.split(":")[0] for m in judged if m.outcome == "caught")
    return {
        "mutants": len(mutants), "judged": len(judged), "outcomes": dict(outcomes),
        "rate": round(100 * outcomes["caught"] / valid, 1) if valid else None,
        "by": dict(by.most_common()),
        **more, "all": [dataclasses.asdict(m) | {"diff": diff(original(m), m)} for m in judged],
    }


def diff(text, mutant):
    lines = difflib.unified_diff(text.split("\n"), mutant.applied(text).split("\n"), n=2, lineterm="")
    return list(lines)[3:]


def show_report(result, options, *notes):
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for m in result["all"]:
        if m["outcome"] == "survived":
            print(f"\n{m['place']}:{m['line']}: {m['kind']} ({m['id']})", *m["diff"], sep="\n  ")
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in result["outcomes"].items())
    print(f"\n{result['judged']} of {result['mutants']} mutants judged: {outcomes}; {result['rate']} % caught")
    for by, count in result["by"].items():
        print(f"  {count:4} by {by}")
    print(*notes, sep="\n")


def main(body):
    """Runs a script's `body` and ends it with the status that it returns."""
    # Counts as Ctrl-C, which processes in the background do not get.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with environment.failures(PROGRAM):
        sys.exit(body())

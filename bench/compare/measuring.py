"""Runs benchmark programs for ci/compare, prove_gate and golden/make_times."""
import argparse
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

# What is timed, where a program has such benchmarks; else all are.
TIMED = r"^[^/]+/(plain|sqrt|every-reentrant)/float32/"
# As in bench/compare/result_file.h.
EXACT = ("peak_bytes", "saved_bytes", "offloaded_bytes", "allocations", "layer_runs",
         "recomputed_layers", "flops", "recomputed_flops")


class Failure(Exception):
    """Ends in exit status 2."""


def names_of(program, pattern):
    done = subprocess.run([program, "--benchmark_list_tests=true"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{program} --benchmark_list_tests failed:\n{done.stderr.strip()}")
    return [n for n in done.stdout.split("\n") if n.strip() and re.search(pattern, n)]


def takes_timelines(program):
    """Earlier commits' programs refuse the option."""
    return subprocess.run([program, "--timelines", os.devnull, "--benchmark_list_tests=true"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def regex(text):
    try:
        re.compile(text)
    except re.error as e:
        raise argparse.ArgumentTypeError(f"not a regular expression: {e}")
    return text


class Progress:
    """One line on a terminal, from the third second on."""

    def __init__(self):
        self.on = sys.stderr.isatty()
        self.start = time.monotonic()
        self.drawn = False

    def show(self, done, of, text):
        seconds = time.monotonic() - self.start
        if not self.on or seconds < 2 or done == 0:
            return
        left = seconds / done * (of - done)
        full = 24 * done // of
        line = f"{'█' * full}{'░' * (24 - full)} {100 * done // of:3} %  {left / 60:.0f} min left  {text}"
        width = shutil.get_terminal_size().columns - 1
        print("\r" + line[:width] + "\033[K", end="", file=sys.stderr, flush=True)
        self.drawn = True

    def clear(self):
        if self.drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self.drawn = False


def exact(name):
    """A regular expression for a name."""
    return re.sub(r"([.\[\]{}()\\*+?^$|])", r"\\\1", name)


@contextlib.contextmanager
def fresh_copy(program, folder):
    """A copy of the program for one process. In which pages of memory a file lies is chance, and
    moves times by percents; as long as the file is cached it is the same chance for each process,
    so that two builds of one source differ for good. Copies draw again."""
    copy = Path(folder) / "program"
    shutil.copy(program, copy)
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


class Measurement:
    """Runs both programs in turn. One process is one file of one benchmark; neighbours in time have
    the same name in the folders of both sides."""

    def __init__(self, revisions, names, folder, options):
        self.labels = [r.label for r in revisions]
        self.programs = dict(zip(("base", "new"), (r.program for r in revisions)))
        self.names = names
        self.folder = folder
        self.options = options
        self.pairs = {}
        shutil.rmtree(folder, ignore_errors=True)
        for side in self.programs:
            (folder / side).mkdir(parents=True)

    def run(self, side, name, pair):
        number = self.names.index(name)
        target = self.folder / side / f"{pair:04}-{number:04}.json"
        part = target.with_suffix(".part")
        with fresh_copy(self.programs[side], self.folder) as program:
            self.run_program(program, side, name, target, part)

    def run_program(self, program, side, name, target, part):
        command = [program, f"--benchmark_filter=^{exact(name)}$",
                   f"--benchmark_min_time={self.options.min_time:g}",
                   f"--benchmark_repetitions={self.options.repetitions}",
                   f"--benchmark_out={part}", "--benchmark_out_format=json"]
        # Its own session: Ctrl-C is for this script.
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 text=True, start_new_session=True)
        try:
            _, errors = child.communicate()
        except BaseException:
            child.kill()
            child.wait()
            part.unlink(missing_ok=True)
            raise
        if child.returncode != 0:
            raise Failure(f"{self.programs[side]} failed with {child.returncode} in {name}:\n"
                          f"{errors[-2000:]}")
        part.rename(target)

    def start_counting(self, side, names):
        """One process for the counters of all benchmarks and the bytes over each step."""
        target = self.folder / side / "counts.json"
        timelines = self.folder / side / "timelines"
        # As an alternative of names, for its regular expressions are not those of Python.
        wanted = f"^({'|'.join(map(exact, names))})$" if self.options.filter else "."
        command = [self.programs[side], f"--benchmark_filter={wanted}",
                   # Once each.
                   "--benchmark_min_time=1e-9", "--benchmark_repetitions=1",
                   f"--benchmark_out={target}", "--benchmark_out_format=json"]
        if takes_timelines(self.programs[side]):
            command += ["--timelines", timelines]
        return side, target, subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                              stderr=subprocess.PIPE, text=True,
                                              start_new_session=True)

    def count(self, names):
        """Counts do not depend on what else runs, so both sides count at once."""
        running = [self.start_counting(side, names[side]) for side in self.programs]
        try:
            for side, target, child in running:
                _, errors = child.communicate()
                if child.returncode != 0:
                    raise Failure(f"{self.programs[side]} failed with {child.returncode}:\n"
                                  f"{errors[-2000:]}")
                result = json.loads(target.read_text())
                result["context"]["rematch_times"] = "no"
                if not (self.folder / side / "timelines").exists():
                    result["context"].pop("rematch_timeline", None)
                target.write_text(json.dumps(result))
        except BaseException:
            for _, target, child in running:
                child.kill()
                child.wait()
                target.unlink(missing_ok=True)
            raise

    def measure(self, names, until, deadline, progress):
        """Pairs of every name, up to `until` of each. False when the time is over."""
        of = sum(until - self.pairs.get(n, 0) for n in names)
        done = 0
        progress.start = time.monotonic()
        for pair in range(until):
            for name in names:
                if self.pairs.get(name, 0) > pair:
                    continue
                if time.monotonic() > deadline and pair > 0:
                    return False
                progress.show(done, of, f"pair {pair + 1} of {until}, {name}")
                # A coin decides who is first. With no change, it alone decides the sign of each
                # difference, so the test of signs and ranks is exact whatever the noise does.
                sides = ["base", "new"]
                if random.SystemRandom().random() < 0.5:
                    sides.reverse()
                for side in sides:
                    self.run(side, name, pair)
                self.pairs[name] = pair + 1
                done += 1
        return True

"""Judges launches: runs each on its PTX, and says per kernel what came of it."""
import collections
import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ptx import trace
from ptx.build import Failure, said
from ptx.machine import Fault, Machine
from ptx.parser import Unknown, is_number, parse
from ptx.translate import Translation

#: Kernels that read shared memory which nothing wrote, and why that is right. It reads as NaN, so that a value that
#: reached a result would be seen.
READS_UNWRITTEN = {("product", "product_kernel"): "elements beyond the edge of a matrix, whose sums are not stored"}
#: Kernels that do more where there is one thread block, and what.
ONE_BLOCK_DOES_MORE = {("loss", "cross_entropy_kernel"): "it adds up the losses"}
OUTCOMES = ("equal", "differs", "undefined", "unknown")


def kernels_of(source):
    return {trace.plain_name(name): kernel for name, kernel in parse(source).items()}


def function_of(mangled):
    """The name of a kernel's function: the last of its nested name."""
    name = ""
    at = re.match(r"_ZN?", mangled).end()
    while found := re.match(r"\d+", mangled[at:]):
        at += found.end() + int(found[0])
        name = mangled[at - int(found[0]):at]
    return name


def runs_of(source, kernel, files):
    """(file, launch, thread blocks, threads): each launch, and once more with fewer of both where the kernel asks how
    many there are, and threads do not work together. Loops then go round more often, as they do for large tensors."""
    def has(*texts):
        return any(t in i.opcode or t in i.operands for i in kernel.instructions for t in texts)

    fewer_blocks = has("%nctaid.x")
    least = 2 if (source, function_of(trace.plain_name(kernel.name))) in ONE_BLOCK_DOES_MORE else 1
    fewer_threads = has("%ntid.x") and not has("shfl", "bar.", "shared")
    for file in files:
        launch = trace.read(file)
        yield file, launch, launch.blocks, launch.threads
        shape = (min(max(launch.blocks // 5, least), launch.blocks) if fewer_blocks else launch.blocks,
                 min(launch.threads, 32) if fewer_threads else launch.threads)
        if shape != (launch.blocks, launch.threads):
            yield file, launch, *shape


def judged(source, kernel, files):
    """Outcomes of a kernel's launches, as a row; runs in a process of its own."""
    name = trace.plain_name(kernel.name)
    row = {"source": source, "kernel": kernel.name, "function": function_of(name), "launches": len(files),
           "threads": [], "blocks": [], "nans": 0, "excused": 0, "findings": [], **dict.fromkeys(OUTCOMES, 0)}
    translation = None
    for file, launch, blocks, threads in runs_of(source, kernel, files):
        row["threads"].append(threads)
        row["blocks"].append(blocks)
        try:
            translation = translation or Translation(kernel)
            machine = Machine(translation, blocks, threads, trace.parameters(kernel, launch),
                              sorted(launch.before.items()))
            machine.excuses_unwritten = (source, function_of(name)) in READS_UNWRITTEN
            machine.run()
            row["excused"] += machine.read_unwritten
            count, first, nans = trace.difference(launch, machine)
            row["nans"] += nans
            outcome, why = ("differs", f"{count} bytes differ, {first}") if count else ("equal", "")
        except Fault as fault:
            outcome, why = "undefined", str(fault)
        except Unknown as unknown:
            outcome, why = "unknown", str(unknown)
        row[outcome] += 1
        if why:
            row["findings"].append({"launch": Path(file).name, "blocks": blocks, "threads": threads,
                                    "outcome": outcome, "why": why})
    held = translation.blocks if translation else []
    row["instructions"] = len(kernel.instructions)
    row["ran"] = sum(b.last - b.first for b in held if b.ran)
    row["lines_not_run"] = [translation.instructions[b.first].line for b in held if not b.ran]
    return row


def spread(files, most):
    """`most` of the files, the last among them: later sizes are often larger."""
    return [files[(k + 1) * len(files) // most - 1] for k in range(most)] if len(files) > most else files


def key(source, name):
    """The key of a kernel's launches: in an unnamed namespace it belongs to a file, and else to all that have it."""
    return (source if "12_GLOBAL__N_1" in name else "", name)


def recorded(folder):
    """{key of a kernel: its files in order}."""
    found = collections.defaultdict(list)
    for file in sorted(folder.glob("*.launch"), key=lambda f: int(f.stem)):
        with open(file, "rb") as opened:
            head = json.loads(opened.readline())
        found[key(head["source"], trace.plain_name(head["kernel"]))].append(str(file))
    return found


def narrower(name, kernels):
    """The kernel that does the same with indices of 32 bits, and takes the same numbers; None if there is none."""
    for at in (found.start() for found in re.finditer("l", name)):
        for narrow in "ij":
            other = kernels.get(name[:at] + narrow + name[at + 1:])
            if other and all(a.size == b.size or is_number(a) and is_number(b)
                             for a, b in zip(kernels[name].parameters, other.parameters, strict=True)):
                return name[:at] + narrow + name[at + 1:]
    return None


def judge(ptx, launches, most, jobs):
    """Rows of all kernels in `ptx`, which is {source: text}. Kernels with 64-bit indices, which tests are too small for,
    run the launches of those with 32 bits."""
    rows, waiting = [], []
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        for source, text in sorted(ptx.items()):
            kernels = kernels_of(text)
            for name, kernel in kernels.items():
                files = launches.get(key(source, name), [])
                other = None if files else narrower(name, kernels)
                files = launches.get(key(source, other), []) if other else files
                waiting.append((other, pool.submit(judged, source, kernel, spread(files, most))))
        for k, (other, future) in enumerate(waiting):
            rows.append({**future.result(), "launches_of": other})
            said(f"{k + 1} of {len(waiting)} kernels, {sum(r['launches'] for r in rows)} launches")
    return rows


def part_run(rows):
    """The part of the instructions that some launch ran."""
    return f"{100 * sum(r['ran'] for r in rows) // max(sum(r['instructions'] for r in rows), 1)} %"


def table(rows):
    """Lines of text: functions of each source, with what came of their instances."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["source"], row["function"]].append(row)
    lines = [f"{'source':<17}{'kernel':<32}{'reached':>9}{'launches':>9}{'PTX':>6}{'threads':>10}"
             f"{'blocks':>9}  outcome"]

    def bounds(group, what):
        values = sorted({v for row in group for v in row[what]})
        return "-".join(str(v) for v in dict.fromkeys((values[0], values[-1]))) if values else "-"

    for (source, function), group in sorted(groups.items()):
        counts = [f"{sum(r[o] for r in group)} {o}" for o in OUTCOMES if sum(r[o] for r in group)]
        reached = f"{sum(r['launches'] > 0 for r in group)}/{len(group)}"
        launches = sum(r["launches"] for r in group)
        lines.append(f"{source:<17}{function:<32}{reached:>9}{launches:>9}{part_run(group):>6}{bounds(group, 'threads'):>10}"
                     f"{bounds(group, 'blocks'):>9}  {', '.join(counts) or 'not reached'}")
    return lines


def demangled(names):
    if not names or not shutil.which("c++filt"):
        return names
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    plain = r"rematch::cuda::|\(anonymous namespace\)::|detail::|^void "
    return [re.sub(plain, "", line) for line in text.splitlines()]


def without_parameters(name):
    """`f<A, B>` of `f<A, B>(C)`."""
    depth = 0
    for at, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            return name[:at]
    return name


def report(rows, asked):
    """The text of a run."""
    lines = table(rows)
    for row in rows:
        for finding in row["findings"][:3]:
            name = without_parameters(demangled([trace.plain_name(row["kernel"])])[0])
            lines += ["", f"{row['source']}: {name}, {finding['blocks']} blocks of {finding['threads']} threads",
                      f"  {finding['outcome']}: {finding['why']}"]
    absent = [r for r in rows if not r["launches"]]
    names = demangled([trace.plain_name(r["kernel"]) for r in absent])
    lines += ["", f"not reached: {len(absent)} of {len(rows)} kernels"]
    lines += [f"  {row['source']}: {without_parameters(name)}" for row, name in zip(absent, names)]
    narrow = sum(bool(row["launches"] and row["launches_of"]) for row in rows)
    lines += [f"with 64-bit indices, on launches of kernels with 32: {narrow} of the others"] if narrow else []
    launches = sum(row["launches"] for row in rows)
    excused = {r["function"] for r in rows if r["excused"]}
    lines += [f"excused: {f} of {s} reads shared memory that nothing wrote: {why}"
              for (s, f), why in READS_UNWRITTEN.items() if f in excused]
    nans = sum(row["nans"] for row in rows)
    lines += ["", f"{launches} launches of {len(rows) - len(absent)} kernels, many again with fewer threads, ran "
              f"{part_run(rows)} of the PTX: "
              + ", ".join(f"{sum(r[o] for r in rows)} {o}" for o in OUTCOMES)
              + f"; {nans} NaNs have other bits than the emulated device's"]
    if asked:
        left_out = sum(k["repeated"] for k in asked["kernels"].values())
        large = sum(k["too_large"] for k in asked["kernels"].values())
        lines.append(f"not run: {left_out} launches like others or beyond {asked['most_shapes']} sizes of a kernel, "
                     f"{large} with more than {asked['most_bytes']} bytes; not judged: {asked['library_calls']} calls of "
                     "cuBLASLt and cuDNN")
    return lines


def main(made, arguments):
    ptx = {name: made.ptx(name) for name in made.sources}
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.traces or Path(scratch)
        if arguments.record or not arguments.traces:
            folder.mkdir(parents=True, exist_ok=True)
            status, output = made.record(folder.resolve(), [arguments.tests])
            if status != 0:
                raise Failure(f"the tests failed on the emulated device:\n{output[-1500:]}")
        launches = recorded(folder)
        if not launches:
            raise Failure("no launch was written")
        summary = folder / "launches.json"
        asked = json.loads(summary.read_text()) if summary.exists() else None
        rows = judge(ptx, launches, arguments.most, arguments.jobs)
    if arguments.json:
        print(json.dumps({"format": 1, "rows": rows, "asked": asked}))
    else:
        print("\n".join(report(rows, asked)))
    return 1 if any(row["findings"] for row in rows) else 0

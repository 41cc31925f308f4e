"""Measures the sides of bench/peers/compare_steps in turn and prints its tables."""

import argparse
import json
import os
import statistics
import subprocess
import sys

from steps_table import print_tables

PLANS = ["plain", "k2", "k4", "sqrt", "sqrt-reentrant", "every", "every-reentrant"]
MODELS = ["mymodel", "cifar", "deep64", "transformer"]


def names(text):
    return text.split(",")


def arguments():
    parser = argparse.ArgumentParser(prog="bench/peers/compare_steps")
    parser.add_argument("--python", required=True)
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=names)
    parser.add_argument("--plans", type=names, default=PLANS)
    parser.add_argument("--sides", type=names, default=["native", "portable", "avx2", "torch"])
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one repetition of one plan")
    parser.add_argument("--json", metavar="FILE", help="where every single measurement goes")
    a = parser.parse_args()
    if a.clock == "cpu" and (a.threads != [1] or a.device != "cpu"):
        parser.error("--clock cpu needs --threads 1 and the CPU")
    large = ["mymodel-b4096", "cifar-b1024", "deep64-b4096", "transformer-b64"]
    large = large if a.device == "cuda" else []
    a.models = a.models or MODELS + large
    return a


class Ours:
    """A build of rematch-bench."""

    def __init__(self, args, presets, extra=()):
        self.args, self.extra = args, list(extra)
        self.program = next((p for p in (f"build/{preset}/bin/rematch-bench" for preset in presets)
                             if os.access(p, os.X_OK)), None)
        if self.program is None:
            sys.exit(f"compare_steps: build first: ci/build {presets[0]}")

    def measure(self, model, threads):
        a = self.args
        plans = "|".join(a.plans)
        command = [self.program, "--device", a.device, "--threads", str(threads), *self.extra,
                   *(["--tf32"] if a.tf32 else []),
                   f"--benchmark_filter=^{model}/({plans})/float32/{a.device}(/|$)",
                   "--benchmark_format=json", f"--benchmark_repetitions={a.repetitions}",
                   "--benchmark_enable_random_interleaving=true",
                   f"--benchmark_min_time={a.seconds}"]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE,
                                           stderr=subprocess.DEVNULL, text=True).stdout)
        clock = "real_time" if a.clock == "wall" else "cpu_time"
        found = {}
        for row in result["benchmarks"]:
            if row["run_type"] != "iteration":
                continue
            plan = found.setdefault(row["name"].split("/")[1], {"ms": []})
            plan["ms"].append(row[clock])
            plan["facts"] = {k: row[k] for k in ("peak_bytes", "flops", "recomputed_flops")}
        context = result["context"]
        about = f"{context['rematch_build']}, vectors {context['vectors']}"
        return found, about, context["rematch_cpu"]


class Torch:
    """A PyTorch that waits for requests in a process of its own."""

    def __init__(self, args):
        self.args = args
        command = [args.python, "bench/peers/torch_steps.py", args.device]
        self.process = subprocess.Popen(command + (["tf32"] if args.tf32 else []), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)

    def measure(self, model, threads):
        a = self.args
        request = {"model": model, "plans": a.plans, "threads": threads,
                   "repetitions": a.repetitions, "seconds": a.seconds}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        found, version = {}, ""
        for line in iter(self.process.stdout.readline, "\n"):
            if not line:
                sys.exit("compare_steps: PyTorch's side ended early; run it by hand: "
                         "bench/peers/torch_steps.py")
            row = json.loads(line)
            plan = found.setdefault(row["plan"], {"ms": []})
            if "wall" in row:
                plan["ms"].append(row[a.clock])
            else:
                plan["facts"] = {"peak_bytes": row["peak_bytes"]}
                version = row["version"]
        return found, f"PyTorch {version}", ""


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0 if os.access(python, os.X_OK) else False


def sides_of(args):
    sides = {}
    for side in args.sides:
        if side == "native":
            sides[side] = Ours(args, ["native"])
        elif side == "portable":
            sides[side] = Ours(args, ["release", "cpu"])
        elif side == "avx2":
            sides[side] = Ours(args, ["release", "cpu"], ["--vectors", "avx2"])
        elif side == "torch":
            if has_torch(args.python):
                sides[side] = Torch(args)
        else:
            sys.exit(f"compare_steps: a side is native, portable, avx2 or torch, not {side}")
    return sides


def main():
    args = arguments()
    sides = sides_of(args)
    about, cpu = {}, ""
    load = os.getloadavg()[0]
    # samples[threads][model][plan][side]: one median a round.
    samples, facts = {}, {}
    for round_ in range(args.rounds):
        for threads in args.threads:
            for model in args.models:
                order = list(sides) if round_ % 2 == 0 else list(reversed(sides))
                for side in order:
                    if sys.stderr.isatty():
                        print(f"\rround {round_ + 1} of {args.rounds}: {threads} threads, {model}, "
                              f"{side:20}", end="", file=sys.stderr)
                    found, about[side], name = sides[side].measure(model, threads)
                    cpu = cpu or name
                    for plan, row in found.items():
                        cell = samples.setdefault(threads, {}).setdefault((model, plan), {})
                        cell.setdefault(side, []).append(statistics.median(row["ms"]))
                        fact = facts.setdefault((threads, model, plan), {})
                        fact.setdefault(side, {}).update(row["facts"])
    if sys.stderr.isatty():
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    samples = {threads: {(m, p): cells[m, p] for m in args.models for p in args.plans}
               for threads, cells in samples.items()}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({"about": about, "cpu": cpu, "clock": args.clock, "steps": [
                {"threads": t, "model": m, "plan": p, "ms": cell, "facts": facts[t, m, p]}
                for t, cells in samples.items() for (m, p), cell in cells.items()]}, out, indent=1)
    print_tables(samples, facts, about, cpu, args)
    if load > 0.5:
        print(f"\nOther work was running: load {load:.1f} on {os.cpu_count()} cores before the first "
              "round. Threads that wait for each other then measure the scheduler, not the programs"
              + ("." if args.clock == "cpu" else "; --threads 1 --clock cpu is the better measure."))


main()

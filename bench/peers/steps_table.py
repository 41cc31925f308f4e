"""The tables of bench/peers/compare_steps. Every figure is a median over rounds; a ratio is the
median of the rounds' ratios, whose two sides were measured within seconds of each other."""

import statistics


def ratio(over, under):
    """The median of paired ratios."""
    return statistics.median(a / b for a, b in zip(over, under))


def due(fact):
    """Cost that a checkpointed step should have, in plain ones."""
    return fact["flops"] / (fact["flops"] - fact["recomputed_flops"])


def print_times(cells, sides, title):
    ours = [s for s in sides if s != "torch"]
    pairs = [(s, "torch") for s in ours if "torch" in sides]
    pairs += [("native", s) for s in ours if s != "native" and "native" in ours]
    print(f"\n{title}")
    head = f"{'model/plan':24}" + "".join(f"{s:>10}" for s in sides)
    head += "".join(f"{b + '/' + a:>17}" for a, b in pairs)
    print(head)
    for (model, plan), cell in cells.items():
        line = f"{model + '/' + plan:24}"
        line += "".join(f"{statistics.median(cell[s]):10.3f}" for s in sides)
        line += "".join(f"{ratio(cell[b], cell[a]):17.2f}" for a, b in pairs)
        print(line)


def print_costs(cells, facts, threads, sides):
    ours = next(s for s in sides if s != "torch")
    with_torch = "torch" in sides
    print("\ncheckpointed over plain, beside what the recomputed FLOPs make due; peak bytes")
    head = f"{'model/plan':24}{'due':>8}" + "".join(f"{s:>10}" for s in sides)
    head += "".join(f"{s + '/due':>14}" for s in sides if s != "torch") + f"{'peak':>13}"
    print(head + (f"{'torch':>13}{'ours/torch':>12}" if with_torch else ""))
    for (model, plan), cell in cells.items():
        fact = facts[threads, model, plan]
        line = f"{model + '/' + plan:24}"
        if plan == "plain" or (model, "plain") not in cells:
            line += f"{'':8}" + " " * 10 * len(sides) + " " * 14 * sum(s != "torch" for s in sides)
        else:
            plain = cells[model, "plain"]
            expected = due(fact[ours])
            line += f"{expected:8.3f}" + "".join(f"{ratio(cell[s], plain[s]):10.3f}" for s in sides)
            line += "".join(f"{ratio(cell[s], plain[s]) / expected:14.3f}" for s in sides
                            if s != "torch")
        peak = fact[ours]["peak_bytes"]
        line += f"{peak:13,.0f}"
        if with_torch:
            other = fact["torch"]["peak_bytes"]
            line += f"{other:13,.0f}{peak / other:12.4f}"
        print(line)


def print_tables(samples, facts, about, cpu, args):
    sides = list(about)
    print(f"{cpu}; {args.rounds} rounds, {args.clock} clock, device {args.device}")
    for side, text in about.items():
        print(f"  {side:10}{text}")
    if "torch" in args.sides and "torch" not in sides:
        print("  torch     not there: its columns are left out")
    for threads, cells in samples.items():
        plural = "thread" if threads == 1 else "threads"
        print_times(cells, sides, f"ms a step, {threads} {plural}")
        print_costs(cells, facts, threads, sides)

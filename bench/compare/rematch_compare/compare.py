"""Compares two sides, from their results to findings in the order in which they are read."""

import re
from argparse import Namespace

from .comparison import Comparison, benchmark_of, judge_times, ordered
from .environment import Failure
from .findings import findings_of, notes_of
from .sides import Sides, choose_clock


def compare(sides: Sides, options: Namespace) -> Comparison:
    # Keeps the order of the base.
    names = list({name: None for f in sides.base.files + sides.new.files for name in f.runs})
    names = [name for name in names if re.search(options.filter, name)]
    if not names:
        raise Failure(f'--filter: no benchmark\'s name matches "{options.filter}"')
    clock, share = choose_clock(sides)
    clock = clock if options.clock == "auto" else options.clock
    c = Comparison(options, sides, clock, [benchmark_of(sides, name) for name in names])
    judge_times(c)
    c.findings, c.notes = ordered(findings_of(c)), notes_of(c, share)
    return c

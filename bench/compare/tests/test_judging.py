"""Whether verdicts keep what they promise, on a synthetic machine that others use as well."""

import gc
import math

import numpy as np
import pytest
from scipy.signal import lfilter

from rematch_compare.judging import centre, judge, p_above
from rematch_compare.measuring import fewest_pairs

BENCHMARKS = 18
FIRST = fewest_pairs(BENCHMARKS) + 4
# Holm's correction collects garbage each time.
gc.freeze()


def noise(draw, runs, processes, rough):
    """Logarithms of times: the state of the machine (an AR(1) process), what a process has by
    chance, a heavy tail, and other work that wants the core for a while."""
    state = lfilter([math.sqrt(1 - 0.9**2)], [1, -0.9], draw.normal(size=(runs, processes)))
    log = 0.03 * state + 0.01 * draw.normal(size=state.shape)
    log += np.clip(0.004 * draw.standard_t(3, size=state.shape), -0.5, 0.5)
    busy, costs = np.zeros(runs, bool), np.zeros(runs)
    for at in range(processes):
        chance = draw.random(runs)
        begins = ~busy & (chance < 0.03)
        costs[begins] = draw.exponential(0.25, begins.sum())
        busy = begins | (busy & (chance >= 0.3))
        log[:, at] += np.log1p(np.where(busy, costs, 0))
    return rough * log


def campaigns(seed, runs, rough=1.0, factor=1.0, changed=0):
    """Simulates ci/compare: the times of each run, measured again while they are open."""
    print(f"seed {seed}")
    draw = np.random.default_rng(seed)
    shape = (runs, 6 * FIRST, BENCHMARKS, 2)
    logs = noise(draw, runs, math.prod(shape[1:]), rough).reshape(shape)
    # A coin decides which of both is first.
    ratios = (logs[..., 1] - logs[..., 0]) * draw.choice([-1, 1], shape[:3])
    ratios[:, :, :changed] += math.log(factor)
    for of_run in ratios:
        pairs = [FIRST] * BENCHMARKS
        for longer in (2, 6, 6):
            times = judge([of_run[:n, i] for i, n in enumerate(pairs)], 0.02, looks=3)
            pairs = [n if t.certain else longer * FIRST for n, t in zip(pairs, times, strict=True)]
        yield times


@pytest.mark.parametrize("rough", [0.3, 1.0, 3.0])
def test_a_program_beside_itself_has_a_false_alarm_in_at_most_one_run_of_a_hundred(rough):
    verdicts = [{t.verdict for t in times} for times in campaigns(1, 300, rough)]
    alarms = sum(bool(v & {"SLOWER", "FASTER"}) for v in verdicts)
    print(f"{alarms} of 300 runs")
    assert alarms <= 3


def test_five_percent_more_time_is_found_in_at_least_95_of_a_hundred():
    changed = [t.verdict for times in campaigns(2, 100, factor=1.05, changed=3) for t in times[:3]]
    print(f"{changed.count('SLOWER')} of {len(changed)}")
    assert changed.count("SLOWER") >= 0.95 * len(changed)
    assert "SAME" not in changed


def test_an_interval_beyond_the_least_effect_is_never_unsure():
    draw = np.random.default_rng(4)
    for pairs in (6, 9, 30):
        shifts = draw.uniform(-0.5, 0.5, (60, 1))
        for t in judge(list(shifts + draw.normal(0, 0.02, (60, pairs))), 0.02, looks=3):
            beyond = "SLOWER" if t.low > 1.02 else "FASTER" if t.high < 1 / 1.02 else None
            assert t.verdict == beyond or (beyond is None and t.verdict in ("SAME", "UNSURE"))


def test_the_interval_leaves_out_what_the_test_of_its_tails_rejects():
    values = np.random.default_rng(5).normal(size=(1, 20))
    _, low, high = centre(values, 0.95)
    for edge in np.linspace(-1, 1, 97):
        assert (edge < low[0]) == (p_above(values, edge)[0] <= 0.025)
        assert (edge > high[0]) == (p_above(-values, -edge)[0] <= 0.025)


def test_more_benchmarks_or_looks_ask_for_more_pairs():
    for benchmarks, looks, fewest in ((1, 1, 8), (5, 1, 10), (1, 2, 9)):
        assert fewest_pairs(benchmarks, looks=looks) == fewest
        for pairs in (fewest - 1, fewest):
            times = judge([np.linspace(0.1, 0.2, pairs)] * benchmarks, 0.02, looks=looks)
            assert times[0].certain == (pairs == fewest)

"""Whether times differ: signed ranks of paired ratios, with a bound on false alarms of a whole run.

A pair of neighbouring processes gives one ratio. Wilcoxon's signed-rank test asks whether they lie
beyond the band of the least effect. Holm's correction over benchmarks and directions, and a share
of the error probability for each look, bound false alarms to 1 % of runs. The interval (Hodges and
Lehmann) inverts the test, for each benchmark by itself. It decides SAME; one beyond the band is
SLOWER or FASTER whatever the correction says, for no regression may pass for want of pairs:
ci/compare measures it again until it is `certain`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from .measuring import ALPHA

# Beyond, the normal approximation with continuity correction, whose tails are heavier.
EXACT_PAIRS = 100
LEVEL = 0.95


@dataclass
class Time:
    """Comparison of the times of a benchmark; ratios are new over base."""

    verdict: str = "-"  # SLOWER, FASTER, SAME, UNSURE; "-": not compared.
    certain: bool = True
    pairs: int = 0
    base_ns: float | None = None
    new_ns: float | None = None
    ratio: float | None = None
    low: float = 0
    high: float = math.inf
    p_slower: float = 1
    p_faster: float = 1


@cache
def rank_sums(n: int) -> np.ndarray:
    """P(W <= w) of the sum of the positive ranks of n differences, w = 0, 1, ..."""
    p = np.ones(1)
    for rank in range(1, n + 1):
        p = (np.pad(p, (0, rank)) + np.pad(p, (rank, 0))) / 2
    return np.cumsum(p)


def left_out(n: int, tail: float) -> int:
    """Which average from either end is the interval's; 0 where n is too small for one."""
    return int(np.searchsorted(rank_sums(n), tail, side="right"))


def centre(values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimate, lower and upper end of the interval of each row."""
    n = values.shape[1]
    i, j = np.triu_indices(n)
    averages = np.sort((values[:, i] + values[:, j]) / 2, axis=1)
    k = left_out(n, (1 - level) / 2)
    none = np.full(len(values), np.inf)
    low, high = (averages[:, k - 1], averages[:, -k]) if k else (-none, none)
    return np.median(averages, axis=1), low, high


def p_above(values: np.ndarray, edge: float) -> np.ndarray:
    """P-value of "its centre is at most `edge`" for each row."""
    how = {"alternative": "greater", "zero_method": "zsplit", "correction": True, "axis": 1}
    method = "exact" if values.shape[1] <= EXACT_PAIRS else "asymptotic"
    return stats.wilcoxon(values - edge, method=method, **how).pvalue


def judge(samples: Sequence[Sequence[float]], min_effect: float, looks: int = 1) -> list[Time]:
    """The verdict of each sample of logarithms of ratios, of one comparison."""
    times = [Time("UNSURE", certain=False, pairs=len(s)) for s in samples]
    edge = math.log1p(min_effect)
    # Simultaneous over the looks: SAME may not become easier by looking often.
    level = 1 - (1 - LEVEL) / looks
    p = np.ones((len(samples), 2))
    for n in {len(s) for s in samples} - {0}:
        rows = [i for i, s in enumerate(samples) if len(s) == n]
        values = np.array([samples[i] for i in rows], dtype=float)
        # Mirrored, so that swapping the sides swaps the verdicts.
        p[rows, 0], p[rows, 1] = p_above(values, edge), p_above(-values, edge)
        for i, estimate, low, high in zip(rows, *centre(values, level), strict=True):
            times[i].ratio = math.exp(estimate)
            times[i].low, times[i].high = math.exp(low), math.exp(high)
    if len(samples) == 0:
        return times
    adjusted = np.minimum(1, multipletests(p.ravel(), method="holm")[1] * looks).reshape(p.shape)
    for t, (slower, faster) in zip(times, adjusted, strict=True):
        t.p_slower, t.p_faster = float(slower), float(faster)
        t.certain = bool(min(slower, faster) <= ALPHA)
        if slower <= ALPHA or t.low > 1 + min_effect:
            t.verdict = "SLOWER"
        elif faster <= ALPHA or t.high < 1 / (1 + min_effect):
            t.verdict = "FASTER"
        elif t.low >= 1 / (1 + min_effect) and t.high <= 1 + min_effect:
            t.verdict, t.certain = "SAME", True
    return times

"""Random small models, run plain and checkpointed with Hypothesis, for the tests hypothesis_*.py.
Only losses and gradients are compared.

A model is what `rematch check --mix standard` draws: half small perceptrons, half small
convolutional networks, cut into checkpointed segments.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

SAFE = ("linear", "relu", "gelu", "tanh", "layer_norm", "conv", "pool")
"""Layers without state, masks and options: whatever a test sees of these alone is a false alarm."""
OF_IMAGES = ("conv", "relu", "pool", "batch_norm", "dropout")
ONLY_OF_IMAGES = ("conv", "pool")


@dataclass
class Layer:
    kind: str
    inputs: int
    outputs: int
    is_image: bool = False


@dataclass
class Case:
    seed: int
    layers: list[Layer]
    shape: tuple[int, ...]
    """Shape of the input: rows, or images with their channels second."""
    segments: list[tuple[int, int]]
    options: dict[str, Any] = field(default_factory=dict)

    def input(self) -> np.ndarray:
        return np.random.default_rng(self.seed).standard_normal(self.shape).astype(np.float32)


@dataclass
class Meeting:
    """Additional draws, with which a test meets a known divergence."""

    layers: Sequence[str] = ()
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass
class Peer:
    """A test of one framework."""

    versions: dict[str, str]
    run: Callable[[Case, bool], Sequence[np.ndarray]]
    """Makes the model of a case from its seed, runs it plain or checkpointed, and returns the loss
    and all gradients."""
    layers: Sequence[str]
    """All that a user's test draws from; SAFE are among them."""
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values of every option; the first is the usual one."""
    meets: Mapping[str, Meeting] = field(default_factory=dict)
    """Aims of a test, by the entry of the framework's profile."""
    tolerance: float = 0
    """Relative to the largest number of a run. Runs that are compiled may round differently."""

    def differs(self, case: Case) -> bool:
        """Lets through what the plain run raises."""
        plain = self.run(case, False)
        try:
            again = self.run(case, True)
        except Exception:
            return True
        # Behind a norm, gradients may be rounding alone: only what is small beside all counts.
        largest = max(np.abs(a).max(initial=0) for a in plain)
        pairs = zip(plain, again, strict=True)
        return not all(self._equal(a, b, largest) for a, b in pairs)

    def _equal(self, a: np.ndarray, b: np.ndarray, largest: float) -> bool:
        if self.tolerance == 0:
            return np.array_equal(a, b, equal_nan=True)
        near = self.tolerance * largest
        return a.shape == b.shape and np.allclose(a, b, self.tolerance, near, equal_nan=True)


def _perceptron(draw: Any, kinds: Sequence[str]) -> tuple[list[Layer], tuple[int, ...]]:
    rows, first = draw(st.integers(2, 8)), draw(st.integers(1, 16))
    width, layers = first, []
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from([k for k in kinds if k not in ONLY_OF_IMAGES]))
        out = draw(st.integers(1, 16)) if kind == "linear" else width
        layers.append(Layer(kind, 2 * width, 2 * out))
        width = out
    return layers, (rows, 2 * first)


def _convolutional(draw: Any, kinds: Sequence[str]) -> tuple[list[Layer], tuple[int, ...]]:
    first, side = draw(st.integers(1, 4)), draw(st.sampled_from([4, 8]))
    shape = draw(st.integers(2, 8)), first, side, side
    channels, layers = first, []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from([k for k in kinds if k in OF_IMAGES]))
        if kind == "pool":
            if side < 4:
                continue
            side //= 2
        out = draw(st.integers(1, 8)) if kind == "conv" else channels
        layers.append(Layer(kind, channels, out, is_image=True))
        channels = out
    layers += [Layer("flatten", channels, channels * side * side, is_image=True)]
    return [*layers, Layer("linear", channels * side * side, 4)], shape


@st.composite
def _cases(draw: Any, kinds: Sequence[str], options: Mapping[str, Sequence[Any]]) -> Case:
    number = draw(st.integers(0, 2**31 - 1))
    model = _perceptron if draw(st.booleans()) else _convolutional
    layers, shape = model(draw, kinds)
    chosen = {name: draw(st.sampled_from(list(values))) for name, values in options.items()}
    count = draw(st.integers(1, len(layers)))
    cuts = [len(layers) * i // count for i in range(count + 1)]
    return Case(number, layers, shape, list(zip(cuts, cuts[1:], strict=False)), chosen)


class _Differs(Exception):
    """A run differs from its plain one."""


def _hunt(
    peer: Peer, cases: int, limit: float, number: int, meeting: Meeting | None
) -> dict[str, Any]:
    """Up to `cases`, within `limit` seconds. `meeting`: what is drawn beside SAFE, up to the first
    case that differs; None: all that a user's test draws, and all cases."""
    stop = meeting is not None
    kinds = list(peer.layers) if meeting is None else [*SAFE, *meeting.layers]
    options = dict(peer.options)
    if meeting is not None:
        options = {o: meeting.options.get(o, values[:1]) for o, values in options.items()}
    done, failed, first = 0, 0, None

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_cases(kinds, options))
    def test(case: Case) -> None:
        nonlocal done, failed, first
        if first is not None and stop:
            raise _Differs
        if time.perf_counter() - begin > limit:
            return
        differs = peer.differs(case)
        done += 1
        failed += differs
        if differs and first is None:
            first = {"case": done, "seconds": time.perf_counter() - begin}
            first["cpu_seconds"] = time.process_time() - cpu
            if stop:
                raise _Differs

    begin, cpu = time.perf_counter(), time.process_time()
    try:
        test()
    except BaseException as error:
        if first is None or not stop:
            raise error
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    found = {"cases": done, "failed": failed, "first": first}
    return {**found, "seconds": seconds, "cpu_seconds": cpu}


def main(peer: Peer) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--limit", type=float, default=60, help="seconds for so many cases")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--meet",
        help="for each of these known divergences, or all, separated by commas: up to the first "
        "case in which losses or gradients differ, on so many seeds",
    )
    words = parser.parse_args()
    warnings.filterwarnings("ignore")
    # Loading on first use is no part of the test.
    _hunt(peer, 20, words.limit, 0, None)
    report: dict[str, Any] = {"versions": peer.versions}
    if words.meet is None:
        report |= _hunt(peer, words.cases, words.limit, 1, None)
        report["cases_per_second"] = round(report["cases"] / report["seconds"], 1)
    else:
        wanted = peer.meets if words.meet == "all" else words.meet.split(",")
        meetings = {"": Meeting(), **{w: peer.meets[w] for w in wanted if w in peer.meets}}
        report["met"] = {
            name: [
                _hunt(peer, words.cases, words.limit, number + 1, meeting)
                for number in range(words.seeds)
            ]
            for name, meeting in meetings.items()
        }
    print(json.dumps(report))

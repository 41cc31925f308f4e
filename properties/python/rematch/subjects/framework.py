"""A framework as a subject, from the few things that its adapter says.

The model of a case is written as source code in the framework (`source.py`) and run; an exported
script (`script.py`) has the same source. So an adapter is mostly a table of expressions. The rest
of a training step is done here, in NumPy, alike for plain and checkpointed runs.
"""

import inspect
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rematch.subjects.adapter_run import Run
from rematch.subjects.case import PROMISE
from rematch.subjects.description import COMMON, SEEN, Description, Pending, Place
from rematch.subjects.library import modules, of_library
from rematch.subjects.promises import NONE, SHARE, broken
from rematch.subjects.protocol import Request, Subject, Unsupported
from rematch.subjects.records import Record
from rematch.subjects.script import export
from rematch.subjects.steps import Steps

__all__ = ["COMMON", "SEEN", "Framework", "Pending", "Place", "Run"]


def mappings() -> int:
    """Counts the memory mappings of this process."""
    with open("/proc/self/maps", "rb") as maps:
        return sum(1 for _ in maps)


class Framework(Description, Subject):
    """Derive from it, and say what Description asks for; `frameworks/mlx` is a short example.

    Functions in which the framework differentiates are pure by default: `differentiate()`. One
    with a tape and gradients that are attributes overrides `forward()` and `backward()` instead.
    """

    searches = False
    """Layers of its library are being looked for."""

    def __init__(self) -> None:
        if self.library and not self.searches:
            self.modules = (*self.modules, *modules(self.found()))
        super().__init__()
        self.exports = True
        self.run_type: type[Run] = Run
        self._promises = {promise.__name__: promise for promise in self.promises}
        self._tries(self._promises, SHARE)
        self._wrong: dict[str, str] = {}
        """Results of promises that were tried."""
        self._runs = 0

    def generators(self, m: Any) -> Sequence[Any]:
        """The states of random generators of a module's own."""
        return ()

    def found(self) -> Mapping[str, Any]:
        if self.library is None:
            return super().found()
        return of_library(self.library, self.versions, inspect.getfile(type(self)))

    def _tries(self, promises: Collection[str], share: float) -> None:
        """Declares the names of promises, one of which that share of cases tries."""
        self.options, self.shares = dict(self.options), dict(self.shares)
        if promises:
            self.options[PROMISE], self.shares[PROMISE] = [NONE, *promises], share

    def implements(self, features: Sequence[str]) -> list[str]:
        known = self.features - ({"mse", "cross_entropy"} - set(self.losses))
        known |= set(self.kinds) | ({"custom"} if self.modules else set())
        return [f for f in features if f in known]

    def observes(self, observables: Sequence[str]) -> list[str]:
        seen = self.observed | ({"draws"} if self.sees_draws else set())
        seen |= {"execution_order"} if "executions" in seen else set()
        return [o for o in observables if o in seen or (o == "promises" and PROMISE in self.options)]

    def given(self, run: Run, x: np.ndarray) -> list[Any]:
        """The values of `run.arguments`."""
        return [self.array(x), *run.parameters]

    def differentiate(
        self, run: Run, objective: partial[Any], arguments: list[Any], trained: list[int]
    ) -> tuple[Any, Sequence[Any], Sequence[Any]]:
        """Calls the helper of that name. An override that compiles may use a step again for an equal `run.key`, and
        passes it `objective.args` and `arguments` each time: a compiled step may not remember them."""
        return self.names["differentiate"](objective, arguments, trained)

    def forward(self, run: Run, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        """Runs a forward and, as most frameworks know no difference, its backward."""
        given, trained = self.given(run, x), run.trained
        extras = [run.names[e] for e in self.extras]
        objective = partial(run.objective, self.array(target), extras)
        loss, outputs, gradients = self.differentiate(run, objective, given, trained)
        found = dict(zip(trained, gradients, strict=True))
        every = [found.get(i) for i in range(len(run.parameters) + 1)]
        return Pending(place, outputs, loss, None, every)

    def backward(self, run: Run, pending: Pending) -> Any:
        """Adds to the gradients of the run, and returns that of the input, or None."""
        for index, gradient in enumerate(pending.gradients[1:]):
            if gradient is not None:
                run.add_gradient(index, gradient)
        return pending.gradients[0]

    def steps(self, request: Request, record: Record) -> Steps:
        """Makes the run of a case."""
        return self.run_type(self, request, record)

    def run(self, request: Request, record: Record) -> None:
        steps, failed = self.steps(request, record), False
        try:
            steps.go()
        except Unsupported:
            raise
        except Exception as error:
            record.error(type(error).__name__, self.message(error))
            failed = True
        finally:
            steps.let_go()
            self.let_go()
        # Errors are let go of first, and with them the generators in their frames.
        left = self.put_back()
        if failed:
            return
        promise = request.case.options.get(PROMISE)
        if request.checkpointed and promise and not left:
            record.add("promises", name=promise, broken=self.broken(promise))
            left = self.put_back()
        if left and "error" not in record.to_json():
            record.error("LeftBehind", f"the run leaves settings changed: {left}")

    def let_go(self) -> None:
        """Lets go of what a run has used, and of what was compiled where that is much."""
        self.place = None
        self._runs += 1
        # Some frameworks map each piece of compiled code by itself; Linux allows 65,530.
        if self._runs % 8 == 0 and mappings() > 30_000:
            self.drop_compiled()

    def broken(self, promise: str) -> str:
        """What became of the promise of that name, "" if it was kept."""
        if promise not in self._wrong:
            self._wrong[promise] = broken(self, self._promises[promise])
        return self._wrong[promise]

    def export(self, request: Request, finding: str) -> str:
        return export(self, request, finding)

"""JAX: `jax.checkpoint()` with its policies, op by op or compiled, and what frameworks on its arrays share."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rematch.frameworks.jax.jax_layers import HELPERS, IMPORTS, LOSSES, MODULES, REFERENCES, Steps, kinds, xla
from rematch.frameworks.jax.policies import POLICY, VALUES, disobeyed, option
from rematch.frameworks.jax.promises import PROMISES, gradients
from rematch.frameworks.jax.promises_transformations import PROMISES as TRANSFORMATIONS
from rematch.frameworks.jax.saved import OF_ARRAYS, OF_STEPS, WITHIN, Eager, Step, within
from rematch.subjects.case import Choice
from rematch.subjects.framework import COMMON, SEEN, Framework, Pending, Place, Run
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record


class OnJax(Framework):
    """A framework that differentiates functions of JAX's arrays, mostly in compiled steps."""

    losses = LOSSES
    whole_segments = True
    detach = "lax.stop_gradient({x})"
    enter_line = ""
    within = WITHIN
    observed = SEEN | OF_STEPS
    script_array = "jnp.array({array})"
    cases_per_shape = 2

    def __init__(self) -> None:
        self._steps = Steps()
        super().__init__()
        self.names["within"] = within

    def array(self, a: np.ndarray) -> Any:
        return jax.device_put(a)

    def drop_compiled(self) -> None:
        jax.clear_caches()


CSE = "prevent_cse"
"""The option of cases that allow XLA to merge a recomputation with its forward; loops always do."""


def compiled(step: Any) -> Any:
    return step


def scanned(function: Any, *arguments: Any) -> Any:
    """Calls the function as the body of a loop."""
    body = lambda carry, _: (carry, function(*arguments))  # noqa: E731
    return jax.tree.map(lambda y: y[0], jax.lax.scan(body, None, None, length=1)[1])


def differentiate(objective: Any, arguments: Any, trained: Any) -> Any:
    if not trained:
        return (*compiled(objective)(*arguments), [])
    step = compiled(jax.value_and_grad(objective, tuple(trained), has_aux=True))
    (loss, outputs), gradients = step(*arguments)
    return loss, outputs, gradients


@dataclass
class Pulled(Pending):
    """A forward with the function that computes its gradients."""

    pull: Callable[..., Any] | None = None


class Jax(OnJax):
    """`jit`: a step is one compiled function. `nested`: segments use their parameters as values
    around them. `policies`: most cases have a policy; what is drawn is then not looked
    at, for that depends on what is kept. `scan`: each segment is the body of a loop. `remat3`: by
    JAX's new implementation."""

    versions = {"jax": jax.__version__, "numpy": np.__version__}
    script_gradient = "compiled(jax.grad(objective, {at}))({arguments})"
    helpers = (*HELPERS, scanned, differentiate)
    kinds = kinds("jax.random.fold_in(key, {layer})")
    extras = ("key",)
    bind = "bound({m}, {w})"
    drew_line = "jax.debug.callback(drawn, {layer}, {x}, {y})"
    modules = (*MODULES, *REFERENCES)
    promises = (*PROMISES, *TRANSFORMATIONS)
    promise_helpers = (gradients,)
    checkpoint_function = "jax.checkpoint"
    new_plans = True

    def __init__(
        self, jit: bool = False, nested: bool = False, policies: bool = False, scan: bool = False, remat3: bool = False
    ) -> None:
        chosen = {"jit": jit, "nested": nested, "policies": policies, "scan": scan}
        chosen["remat3"] = remat3
        self.name = " ".join([f"jax {jax.__version__}", *(n for n, c in chosen.items() if c)])
        step = "jax.jit" if jit else "lambda step: step"
        self.imports = f"{xla(same_rounding=not jit)}{IMPORTS}\ncompiled = {step}"
        if remat3:
            self.imports += '\njax.config.update("jax_remat3", True)'
        self.features = COMMON | {"float64", "sequences"}
        if remat3:
            # It compiles what it wraps.
            self.rounds = "differently"
            self.new_plans = False
        if jit:
            self.rounds = "differently"
            self.new_plans = False
            self.modules = MODULES
            self.sees_draws = not policies
        else:
            self.features |= {"forwards_first"}
            self.observed = SEEN | OF_ARRAYS
        self.nested_functions = nested
        self._jit, self._scan = jit, scan
        self._run: Run | None = None
        super().__init__()
        if not jit:
            self.run_type = Eager
        if not scan:
            self.options[CSE], self.shares[CSE] = ["yes", "no"], 0.5
        if policies or not any(chosen.values()):
            self.options[POLICY], self.shares[POLICY] = VALUES, 0.9 if policies else 0.2
        self.names |= {"drawn": self._drawn, "np": np}

    def checkpoint_call(
        self, function: str, arguments: Sequence[str], choice: Choice, chosen: Mapping[str, str]
    ) -> str:
        options = ", prevent_cse=False" if self._scan or CSE in chosen else ""
        call = f"jax.checkpoint({function}{options}{option(chosen)})"
        if self._scan:
            return f"scanned({', '.join([call, *arguments])})"
        return f"{call}({', '.join(arguments)})"

    def seed(self, seed: int) -> str:
        return f"key = jax.random.key({seed}); np.random.seed({seed})"

    def forward(self, run: Run, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        self._run = run
        run.names["key"] = jax.random.fold_in(run.names["key"], 1)
        if self._jit:
            return super().forward(run, x, target, place)
        given, trained = self.given(run, x), run.trained
        around = self.array(target), [run.names["key"]]

        def chosen(*values: Any) -> Any:
            replaced = dict(zip(trained, values, strict=True))
            return run.objective(*around, *(replaced.get(i, a) for i, a in enumerate(given)))

        values = [given[i] for i in trained]
        loss, pull, outputs = jax.vjp(chosen, *values, has_aux=True)
        held = given, around

        def whole() -> Any:
            return jax.make_jaxpr(partial(jax.vjp, chosen, has_aux=True))(*values).jaxpr

        assert isinstance(run, Eager)
        run.after_forward(place, loss, pull, held, whole if POLICY in run.request.case.options else None)
        return Pulled(place, outputs, loss, held, pull=pull)

    def differentiate(self, run: Run, objective: partial[Any], arguments: list[Any], trained: list[int]) -> Any:
        def step(around: Any, given: Any) -> Any:
            return differentiate(partial(objective.func, *around), given, trained)

        found = self._steps.get(run.key, lambda: Step(jax.jit(step)))(run, objective.args, arguments)
        jax.effects_barrier()
        return found

    def run(self, request: Request, record: Record) -> None:
        super().run(request, record)
        if request.checkpointed and POLICY in request.case.options and "error" not in record.to_json():
            record.add("promises", name=POLICY, broken=disobeyed(self, request))

    def backward(self, run: Run, pending: Pending) -> Any:
        if isinstance(pending, Pulled) and pending.pull is not None:
            gradients = pending.pull(jnp.ones_like(pending.loss))
            found = dict(zip(run.trained, gradients, strict=True))
            pending.gradients = [found.get(i) for i in range(len(run.parameters) + 1)]
            pending.pull = None
            assert isinstance(run, Eager)
            run.after_backward(pending.place, (pending.input, pending.outputs, pending.loss, gradients))
        return super().backward(run, pending)

    def _drawn(self, layer: Any, operand: Any, output: Any) -> None:
        """Called back from where a layer drew."""
        assert self._run is not None and self.place is not None
        self._run.names["enter"](int(layer))
        self._run.names["drew"](int(layer), operand, output)


def subject(arguments: list[str]) -> Framework:
    parser = argparse.ArgumentParser(prog="python -m rematch jax")
    parser.add_argument("--jit", action="store_true", help="compile each step as a whole")
    parser.add_argument("--nested", action="store_true", help="segments use parameters as values around them")
    parser.add_argument("--policies", action="store_true", help="most cases have a policy")
    parser.add_argument("--scan", action="store_true", help="segments are the bodies of loops; with --jit")
    parser.add_argument("--remat3", action="store_true", help="JAX's new jax.checkpoint(), which it has as an option")
    given = parser.parse_args(arguments)
    if given.scan and not given.jit:
        parser.error("--scan: needs --jit; op by op, a loop is compiled whenever it runs")
    return Jax(**vars(given))

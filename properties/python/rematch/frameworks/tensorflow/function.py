"""TensorFlow in `tf.function`: steps are compiled once for many cases."""

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from rematch.frameworks.tensorflow.framework import KINDS, MODULES, TensorFlow, differentiate, state_of
from rematch.frameworks.tensorflow.tensorflow_run import OF_FORWARDS, TracedRun
from rematch.subjects.adapter_layers import where_drawn
from rematch.subjects.case import shape_of
from rematch.subjects.framework import COMMON, SEEN, Framework, Pending, Place, Run


def of_step(objective: Any, arguments: Any, trained: Any) -> Any:
    step = tf.function(lambda: differentiate(objective, arguments, trained), autograph=False)
    return step()


def of_forward(objective: Any, arguments: Any, trained: Any) -> Any:
    return differentiate(tf.function(objective, autograph=False), arguments, trained)


class InFunction(TensorFlow):
    """Steps are compiled: with their gradients, or the forward alone. Cases of one shape share
    what was compiled, with its variables."""

    kinds = KINDS | {
        # Seeds of other random ops depend on where they stand in the graph, and so would masks.
        "dropout": where_drawn("tf.nn.experimental.general_dropout({x}, {p}, tf.random.get_global_generator().uniform)")
    }
    helpers = (*TensorFlow.helpers, of_step, of_forward)
    modules = MODULES
    promises = ()
    features = COMMON | {"sequences"}
    observed = SEEN | {"absent_gradients"}
    sees_draws = False
    made_line = ""
    cases_per_shape = 2

    def __init__(self, function: str, parameters: str) -> None:
        super().__init__(parameters)
        self.run_type = TracedRun if function == "forward" else Run
        if function == "forward":
            self.observed = self.observed | OF_FORWARDS
        self.differentiator = f"of_{function}"
        # The optimizer of graphs rewrites the two runs differently (a single gelu shows it).
        self.rounds = "differently"
        self._steps: dict[str, tuple[dict[str, Any], list[Any], Any]] = {}

    def forward(self, run: Run, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        held, step = self._step_of(run)
        for variables, values in zip(held, run.values, strict=True):
            several = variables if isinstance(variables, list) else [variables]
            for variable, value in zip(several, values, strict=True):
                variable.assign(value)
        # Layers that are traced on behalf of this run must not count for another.
        self.place = None
        looked = [partial(run.both, place)] if isinstance(run, TracedRun) else []
        loss, outputs, gradients = step(self.array(x), self.array(target), *looked)
        found = dict(zip(run.trained, gradients, strict=True))
        every = [found.get(i) for i in range(1 + len(run.parameters))]
        return Pending(place, outputs, loss, None, every)

    def backward(self, run: Run, pending: Pending) -> Any:
        return Framework.backward(self, run, pending)

    def _step_of(self, run: Run) -> tuple[list[Any], Any]:
        """Also the parameters that the step was compiled with."""
        request = run.request
        key = f"{shape_of(request.case)} {request.checkpointed} {request.detached_layers}"
        if key not in self._steps:
            if len(self._steps) > 8 and not request.checkpointed:
                self._steps.clear()
            self._steps[key] = run.modules.copy(), list(run.parameters), self._compiled(run)
        modules, held, step = self._steps[key]
        for name, module in modules.items():
            own = run.modules[name]
            if own is not module:
                for variable, value in zip(_all_state(module), _all_state(own), strict=True):
                    variable.assign(value)
                run.modules[name] = run.names[name] = module
        return held, step

    def _compiled(self, run: Run) -> Any:
        whole, parameters = self.differentiator == "of_step", list(run.parameters)
        model = run.objective if whole else tf.function(run.objective, autograph=False)

        def step(x: Any, target: Any, looked: Any = None) -> Any:
            given, objective = [x, *parameters], partial(model, target, [])
            if looked is None:
                return differentiate(objective, given, run.trained)
            own = [parameters, [m.variables for m in run.modules.values()]]
            return looked(differentiate, objective, given, run.trained, own)

        return tf.function(step, autograph=False) if whole else step


def _all_state(module: Any) -> list[Any]:
    generator = getattr(module, "generator", None)
    return [*state_of(module), *([] if generator is None else [generator.state])]

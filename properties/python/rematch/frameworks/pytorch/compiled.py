"""PyTorch compiled: models whose layers run within functions of torch.compile()."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch._dynamo.guards as guards
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._dynamo.exc import InternalTorchDynamoError
from torch._dynamo.exc import Unsupported as GraphBreak
from torch._dynamo.utils import counters
from torch.fx.traceback import annotate, get_current_meta
from torch.utils.checkpoint import CheckpointPolicy, checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts as contexts_of

from rematch.case import Segment, shape_of
from rematch.frameworks.pytorch import arguments
from rematch.frameworks.pytorch.layers import Dense
from rematch.frameworks.pytorch.model import Forward, TorchModel, Values, Wiring
from rematch.frameworks.pytorch.modules import BREAKING, IN_PLACE, MODULES
from rematch.frameworks.pytorch.policy import is_final, kept_layers
from rematch.frameworks.pytorch.subject import TorchSubject
from rematch.frameworks.pytorch.watch import Watch
from rematch.protocol import Request, Unsupported
from rematch.record import Record

KEPT = 16
"""So many models stay compiled, the plain and the checkpointed ones of the last structures."""

LAYERS = (*(layer for layer in MODULES if layer.name not in BREAKING), IN_PLACE)
NOT_COMPILED = {"injected_failure", "failure_in_segment", "named_stream"}
"""Features that are judged in eager runs only."""
OF_PLANS = ("reentrant", "mixed", "preserve", "fresh", "selective", "kept_draw", "no_check")
OF_PLANS += ("early_stop_off", "sequential", "nested")
"""How features begin that mean nothing where a budget takes the place of the plan."""
UNSEEN = {"grad_flags", "injected_failures"}
"""Observables that cannot be seen from outside of a compiled function."""


@dataclass(frozen=True)
class Compilation:
    """How models are compiled.

    `around`: the segments and what lies between them each for itself, and checkpoint() runs eager
    around them; otherwise the model as a whole, checkpoint() within. `budget`: the checkpointed run
    has no plan, but this for torch._functorch.config.activation_memory_budget.
    """

    backend: str | Callable[..., Any] = "aot_eager"
    around: bool = False
    budget: float | None = None

    def compile(self, run: Callable[..., Values], checkpointed: bool) -> Callable[..., Values]:
        """`run` as one graph, whose first call compiles it. Further calls fail as that one did, and
        look at nothing: whatever is compiled into it must be the same. `checkpointed` says whether
        the budget applies.

        Raises Unsupported where there is nothing to be compiled, or where it takes several graphs.
        """
        # Compiled code belongs to a code object, which methods of equal models would share.
        code, scope = run.__code__.replace(), run.__globals__
        own = FunctionType(code, scope, closure=run.__closure__)
        options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
        compiled = torch.compile(own, backend=self.backend, fullgraph=True, options=options)
        ended: list[Exception | None] = []

        def call(*tensors: Any) -> Values:
            if not ended:
                try:
                    outputs = self._call_first(compiled, checkpointed, tensors)
                except Exception as error:
                    ended.append(error)
                    raise
                ended.append(None)
                return outputs
            if ended[0] is not None:
                raise ended[0]
            return compiled(*tensors)

        return call

    def _call_first(self, compiled: Callable[..., Values], checkpointed: bool, on: Any) -> Values:
        before = counters["stats"]["unique_graphs"]
        budget = self.budget if self.budget is not None and checkpointed else 1.0
        try:
            with functorch_config.patch(activation_memory_budget=budget):
                outputs = compiled(*on)
        except GraphBreak as error:
            raise Unsupported(f"cannot be compiled: {str(error).splitlines()[0]}") from error
        except InternalTorchDynamoError as error:
            if "RecursionError" in str(error):
                raise Unsupported("segments are nested too deeply") from error
            raise
        if counters["stats"]["unique_graphs"] != before + 1:
            raise Unsupported("nothing was compiled: the function computes nothing")
        return outputs


@dataclass
class _Segment:
    """A segment of the plan and the options of its checkpoint()."""

    begin: int
    end: int
    options: dict[str, Any]
    nested: tuple[_Segment, ...]


Segments = tuple[_Segment, ...]


@dataclass
class CompiledModel(TorchModel):
    """A model whose layers run in compiled functions. Whatever is not in a tensor is compiled into
    them; take_over() gives them those of another model of the same structure."""

    compilation: Compilation = Compilation()

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = {index: own.layer for index, own in self._custom.items()}
        # Functions without eval() in them, which cannot be compiled.
        self._calls = {i: eval(f"lambda m, x: {own.call}", own.names) for i, own in layers.items()}
        self._functions: dict[Hashable, Callable[..., Values]] = {}
        self._made = self._segments()

    def take_over(self, other: CompiledModel) -> CompiledModel:
        """This model, with the request and the tensors of `other`."""
        kept = ("_functions", "_calls", "_made")
        self.__dict__.update((n, v) for n, v in vars(other).items() if n not in kept)
        return self

    def forward(self, state: Forward) -> Values:
        request, end, values = self.request, len(self.request.case.layers), tuple(state.inputs)
        checkpointed = request.checkpointed and self.compilation.budget is None
        for index, own in self._custom.items():
            own.module.train(request.case.layers[index].trains(self.train))
        if not self.compilation.around:
            return self._call(0, end, self._made if checkpointed else (), *values)
        layer = 0
        for segment in self._made:
            if layer < segment.begin:
                values = self._call(layer, segment.begin, (), *values)
            layer = segment.end
            run = partial(self._call, segment.begin, segment.end, ())
            values = checkpoint(run, *values, **segment.options) if checkpointed else run(*values)
        return self._call(layer, end, (), *values) if layer < end else values

    def _call(self, begin: int, end: int, segments: Segments, *values: Tensor) -> Values:
        """Runs the layers [begin, end) in a compiled function."""
        flags = tuple(value.requires_grad for value in values)
        key = (begin, end, bool(segments), flags, torch.is_grad_enabled())
        if key not in self._functions:

            def run(*values: Tensor) -> Values:
                return self._run_range(begin, end, segments, None, values)

            self._functions[key] = self.compilation.compile(run, self.request.checkpointed)
        return self._functions[key](*values)

    def _run_layer(self, index: int, state: Any, values: Values) -> Values:
        wiring, layer = self.wirings[index], self.request.case.layers[index]
        operands = [values[at] for at in wiring.operands]
        with annotate({"layer": index}):
            own = self._custom.get(index)
            if own is None:
                run = self._run_of[index]
                assert run is not None
                outputs = self._compute(index, run, operands)
            else:
                if own.module.training != layer.trains(self.train):
                    own.module.train(layer.trains(self.train))
                # A copy, since the harness knows of it that it makes a new value.
                outputs = (self._calls[index](own.module, Dense.apply(operands[0])).clone(),)
        return tuple([outputs[at] if made else values[at] for made, at in wiring.after])

    def _run_checkpoint(self, segment: Any, state: Any, values: Values) -> Values:
        def run(*inputs: Tensor) -> Values:
            return self._run_range(segment.begin, segment.end, segment.nested, state, inputs)

        return checkpoint(run, *values, **segment.options)

    def _segments(self) -> Segments:
        """The segments of the plan."""
        cut = self.request.case.plan.cut(len(self.request.case.layers))
        return tuple(map(self._with_options, cut))

    def _with_options(self, segment: Segment) -> _Segment:
        choice = segment.choice
        options: dict[str, Any] = {"use_reentrant": choice.reentrant}
        if not choice.preserve_rng:
            options["preserve_rng_state"] = False
        if not choice.reentrant:
            check = "none" if choice.determinism == "none" else "default"
            options |= {"early_stop": choice.early_stop, "determinism_check": check}
            if choice.keep:
                kept = kept_layers(self.request.case, choice, segment.begin, segment.end)
                options["context_fn"] = partial(contexts_of, partial(_policy, kept))
        nested = map(self._with_options, segment.nested)
        return _Segment(segment.begin, segment.end, options, tuple(nested))


def _policy(kept: frozenset[int], context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    """Keeps the results of the layers `kept`."""
    layer = get_current_meta().get("custom", {}).get("layer")
    return CheckpointPolicy.MUST_SAVE if layer in kept and is_final(op) else CheckpointPolicy.PREFER_RECOMPUTE


class CompiledSubject(TorchSubject):
    """PyTorch on the CPU, compiled, on one thread. `variant` as in TorchSubject."""

    tries_promises = takes_policies = False

    def __init__(self, compilation: Compilation, variant: str = "both") -> None:
        budget = "" if compilation.budget is None else f" budget {compilation.budget:g}"
        words = f"{compilation.backend}{' around' if compilation.around else ''}{budget}"
        name = f"torch {torch.__version__.split('+')[0]} {words}"
        # Segments are compiled with the tensors that they take and return.
        lacks = arguments.FEATURES
        super().__init__(name, variant=variant, observe="cheap", layers=LAYERS, lacks=lacks)
        # In a script, the forward is compiled as a whole and its checkpoint() with it.
        self.exports = not compilation.around and compilation.budget is None
        self.cases_per_shape = 2
        self._compilation = compilation
        self._compiled: dict[Hashable, CompiledModel] = {}
        inductor_config.fallback_random = True
        inductor_config.compile_threads = 1
        # Kernels are compiled in half the time, and round alike wherever they are fused.
        inductor_config.cpp.simdlen = 1
        inductor_config.emulate_precision_casts = True
        # Findings must not depend on earlier compilations.
        inductor_config.fx_graph_cache = False
        functorch_config.enable_autograd_cache = False
        functorch_config.donated_buffer = False
        # A measurement of guards, which are not used here. It flushes the caches of the processor.
        guards.profile_guard_manager = lambda *_: 0.0
        logging.getLogger("torch").setLevel(logging.ERROR)

    def implements(self, features: Sequence[str]) -> list[str]:
        found = [f for f in super().implements(features) if f not in NOT_COMPILED]
        if self._compilation.budget is not None:
            return [f for f in found if not f.startswith(OF_PLANS)]
        # A policy is a dispatch mode, under which nothing is compiled. Nesting is for graphs.
        apart = ("selective", "kept_draw", "nested") if self._compilation.around else ()
        return [f for f in found if not f.startswith(apart)]

    def observes(self, observables: Sequence[str]) -> list[str]:
        return [o for o in super().observes(observables) if o not in UNSEEN]

    def _model(self, request: Request, wirings: list[Wiring], watch: Watch) -> TorchModel:
        case = request.case
        structure = shape_of(case), request.model, request.checkpointed, request.detached_layers
        how = self._compilation
        model = CompiledModel(request, wirings, watch, custom=self.modules_by_declaration, compilation=how)
        first = self._compiled.pop(structure, None)
        if first is not None:
            model = first.take_over(model)
        # The one that was used last comes last.
        self._compiled[structure] = model
        for gone in list(self._compiled)[:-KEPT]:
            del self._compiled[gone]
        return model

    def export(self, request: Request, finding: str) -> str:
        from rematch.frameworks.pytorch.export import export

        backend = self._compilation.backend
        options = ', options={"fallback_random": True}' if backend == "inductor" else ""
        decorator = f'@torch.compile(backend="{backend}", fullgraph=True{options})'
        return export(request, finding, "", self.modules_by_declaration, decorator)

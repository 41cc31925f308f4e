"""PyTorch compiled: models whose layers run within functions of torch.compile()."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._dynamo.exc import Unsupported as GraphBreak
from torch._dynamo.utils import counters
from torch.fx.traceback import annotate, get_current_meta
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from rematch.case import Case, Segment
from rematch.protocol import Request, Unsupported
from rematch.pytorch import TorchSubject
from rematch.pytorch.model import Forward, TorchModel, Values, Wiring, _bare, _values
from rematch.pytorch.policy import FACTORIES, kept_layers
from rematch.pytorch.watch import Watch
from rematch.record import Record

BACKENDS = ("aot_eager", "inductor")
KEPT = 16
"""So many functions stay compiled: those of the last few structures."""

NOT_COMPILED = {"injected_failure", "failure_in_segment", "named_stream", "custom"}
"""Features that are judged in eager runs only."""
IN_PLANS = {
    "reentrant",
    "mixed_variants",
    "preserve_rng_off",
    "fresh_draws",
    "selective",
    "kept_draw_before_draw",
    "no_check",
    "early_stop_off",
    "sequential",
    "nested_2",
    "nested_3",
    "nested_4",
}
"""Those that mean nothing where a budget takes the place of the plan."""
UNSEEN = {"grad_flags", "injected_failures"}
"""What of a cheap look cannot be seen from outside of a compiled function."""

Tensors = tuple[Tensor, ...]
Functions = dict[Hashable, Callable[..., Tensors]]


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

    def compile(self, run: Callable[..., Tensors], budgeted: bool) -> Callable[..., Tensors]:
        """`run` as one graph, whose first call compiles it. Nothing is looked at in further calls:
        whatever is compiled into it must be the same.

        Raises Unsupported where there is nothing to be compiled, or where it takes several graphs.
        """
        # What is compiled belongs to a code object, which methods of equal models would share.
        own = FunctionType(
            run.__code__.replace(), run.__globals__, run.__name__, None, run.__closure__
        )
        options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
        compiled = torch.compile(
            own, backend=self.backend, fullgraph=True, dynamic=False, options=options
        )
        known = False

        def call(*tensors: Any) -> Tensors:
            nonlocal known
            if known:
                return compiled(*tensors)
            before = counters["stats"]["unique_graphs"]
            budget = self.budget if budgeted else 1.0
            try:
                with functorch_config.patch(activation_memory_budget=budget):
                    outputs = compiled(*tensors)
            except GraphBreak as error:
                raise Unsupported(f"cannot be compiled: {error}") from error
            if counters["stats"]["unique_graphs"] != before + 1:
                raise Unsupported("nothing was compiled: the function computes nothing")
            known = True
            return outputs

        return call


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
    """A model whose layers run in compiled functions. They are found in `functions`, or put there:
    tensors are their arguments, and whatever else they depend on is the same in all models that
    share `functions`."""

    compilation: Compilation = Compilation()
    functions: Functions = field(default_factory=dict)

    def forward(self, state: Forward) -> Values:
        assert state.input is not None
        request, end, values = self.request, len(self.request.case.layers), (state.input,)
        checkpointed = request.checkpointed and self.compilation.budget is None
        if not self.compilation.around:
            return self._call(0, end, self._segments() if checkpointed else (), values)
        layer = 0
        for segment in self._segments():
            if layer < segment.begin:
                values = self._call(layer, segment.begin, (), values)
            layer = segment.end
            nested = segment.nested if checkpointed else ()
            run = partial(self._call_on, segment.begin, segment.end, nested)
            outputs = checkpoint(run, *values, **segment.options) if checkpointed else run(*values)
            values = _values(outputs)
        return self._call(layer, end, (), values) if layer < end else values

    def _call_on(self, begin: int, end: int, segments: Segments, *values: Tensor) -> Any:
        return _bare(self._call(begin, end, segments, values))

    def _call(self, begin: int, end: int, segments: Segments, values: Values) -> Values:
        """Runs the layers [begin, end) in a compiled function."""
        budgeted = self.request.checkpointed and self.compilation.budget is not None
        flags = tuple(value.requires_grad for value in values)
        key = (begin, end, bool(segments), budgeted, flags, torch.is_grad_enabled())
        if key not in self.functions:

            def run(parameters: list[Tensor], buffers: list[Tensor], *values: Tensor) -> Values:
                return self._run_range(begin, end, segments, (parameters, buffers), values)

            self.functions[key] = self.compilation.compile(run, budgeted)
        return self.functions[key](self.parameters, self.buffers, *values)

    def _run_layer(self, index: int, state: Any, values: Values) -> Values:
        # Unless the tensors are arguments, they are those of this model: in an evaluation.
        parameters, buffers = state if isinstance(state, tuple) else (self.parameters, self.buffers)
        request, wiring = self.request, self.wirings[index]
        layer, model = request.case.layers[index], request.model
        weights = [parameters[at] for at in model.layer_parameters[index]]
        if index in request.detached_layers:
            weights = [weight.detach() for weight in weights]
        state = [b for b, info in zip(buffers, model.buffers, strict=True) if info.layer == index]
        operands = [values[at] for at in wiring.operands]
        with annotate({"layer": index}):
            outputs = self._layers[layer.kind](layer, operands, weights, state, self.train)
        return tuple([outputs[at] if made else values[at] for made, at in wiring.after])

    def _run_checkpoint(self, segment: Any, state: Any, values: Values) -> Values:
        def run(*inputs: Tensor) -> Any:
            return _bare(
                self._run_range(segment.begin, segment.end, segment.nested, state, inputs)
            )

        return _values(checkpoint(run, *values, **segment.options))

    def _segments(self) -> Segments:
        """The segments of the plan."""
        plan, layers = self.request.case.plan, len(self.request.case.layers)
        if plan.sequential is None:
            return tuple(map(self._with_options, plan.segments))
        size = layers // plan.sequential.segments
        stored = size * (plan.sequential.segments - 1)
        cut = (Segment(b, b + size, plan.sequential.choice) for b in range(0, stored, size))
        return tuple(map(self._with_options, cut))

    def _with_options(self, segment: Segment) -> _Segment:
        choice = segment.choice
        options: dict[str, Any] = {"use_reentrant": choice.reentrant}
        if not choice.preserve_rng:
            options["preserve_rng_state"] = False
        if not choice.reentrant:
            options |= {"early_stop": choice.early_stop}
            if choice.determinism == "none":
                options["determinism_check"] = "none"
            if choice.keep:
                kept = kept_layers(self, choice, segment.begin, segment.end)
                contexts = partial(create_selective_checkpoint_contexts, partial(_policy, kept))
                options["context_fn"] = contexts
        nested = tuple(map(self._with_options, segment.nested))
        return _Segment(segment.begin, segment.end, options, nested)


def _policy(kept: frozenset[int], context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    """Keeps the results of the layers `kept`."""
    layer = get_current_meta().get("custom", {}).get("layer")
    final = not (op.is_view or op._schema.is_mutable or op in FACTORIES)
    keeps = layer in kept and final
    return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE


class CompiledSubject(TorchSubject):
    """PyTorch on the CPU, compiled, on one thread. `variant` as in TorchSubject."""

    def __init__(self, compilation: Compilation, variant: str = "both") -> None:
        words = [str(compilation.backend), "around" if compilation.around else ""]
        if compilation.budget is not None:
            words.append(f"budget {compilation.budget:g}")
        version = torch.__version__.split("+")[0]
        name = " ".join(["torch", version, *filter(None, words)])
        super().__init__(name, variant=variant, observe="cheap", layers=())
        self.exports = False
        self._compilation = compilation
        self._compiled: dict[Hashable, Functions] = {}
        inductor_config.fallback_random = True
        inductor_config.compile_threads = 1
        # Kernels are compiled in half the time, and round alike wherever they are fused.
        inductor_config.cpp.simdlen = 1
        # What is found must not depend on what was compiled before.
        inductor_config.fx_graph_cache = False
        functorch_config.enable_autograd_cache = False
        functorch_config.donated_buffer = False
        logging.getLogger("torch").setLevel(logging.ERROR)

    def implements(self, features: Sequence[str]) -> list[str]:
        lacking = NOT_COMPILED | (IN_PLANS if self._compilation.budget is not None else set())
        if self._compilation.around:
            # A policy is a dispatch mode, under which nothing is compiled.
            lacking |= {"selective", "kept_draw_before_draw"}
        return [feature for feature in super().implements(features) if feature not in lacking]

    def observes(self, observables: Sequence[str]) -> list[str]:
        return [o for o in super().observes(observables) if o not in UNSEEN]

    def _model(self, request: Request, wirings: list[Wiring], watch: Watch) -> TorchModel:
        case = request.case
        protocol = replace(case.protocol, learning_rate=0)
        structure = replace(case, seed=0, protocol=protocol), request.model, request.detached_layers
        functions = self._compiled.pop(structure, {})
        # The last one is that which was used last.
        self._compiled[structure] = functions
        if len(self._compiled) > KEPT:
            del self._compiled[next(iter(self._compiled))]
        return CompiledModel(
            request, wirings, watch, compilation=self._compilation, functions=functions
        )

    def _keep_promise(self, case: Case, record: Record) -> None:
        """Those are kept by eager runs."""

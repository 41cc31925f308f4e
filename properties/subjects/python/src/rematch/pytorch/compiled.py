"""PyTorch compiled: models whose layers run within functions of torch.compile()."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import Tensor, nn
from torch._dynamo.exc import InternalTorchDynamoError
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
from rematch.pytorch import MODULES, TorchSubject
from rematch.pytorch.custom import CustomLayer
from rematch.pytorch.layers import Dense
from rematch.pytorch.model import Forward, TorchModel, Values, Wiring
from rematch.pytorch.policy import FACTORIES, kept_layers
from rematch.pytorch.watch import Watch
from rematch.record import Record

BACKENDS = ("aot_eager", "inductor")
KEPT = 16
"""So many models stay compiled, the plain and the checkpointed ones of the last structures."""

_BREAKING = {
    *("rnn", "gru_dropout", "lstm", "batch_norm_average", "seeded_noise", "inner_backward"),
    # Numbers that are in no tensor are compiled into the function.
    *("warmup", "numpy_noise", "python_noise"),
}
"""Modules that cannot be compiled, or not for several cases."""
_LAYERS = [layer for layer in MODULES if layer.name not in _BREAKING]
NOT_COMPILED = {"injected_failure", "failure_in_segment", "named_stream"}
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

    def compile(self, run: Callable[..., Values], budgeted: bool) -> Callable[..., Values]:
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

        def call(*tensors: Any) -> Values:
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
            except InternalTorchDynamoError as error:
                if "RecursionError" not in str(error):
                    raise
                raise Unsupported("segments are nested too deeply to be compiled") from error
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
    """A model whose layers run in compiled functions. Whatever is not in a tensor is compiled into
    them; take_over() gives them those of another model of the same structure."""

    compilation: Compilation = Compilation()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._calls = {index: _function(own.layer) for index, own in self._custom.items()}
        self._functions: dict[Hashable, Callable[..., Values]] = {}
        self._made = self._segments()

    def take_over(self, other: CompiledModel) -> CompiledModel:
        """This model, with the request and the tensors of `other`."""
        kept = ("_functions", "_calls", "_made")
        self.__dict__.update((n, v) for n, v in vars(other).items() if n not in kept)
        return self

    def forward(self, state: Forward) -> Values:
        assert state.input is not None
        request, end, values = self.request, len(self.request.case.layers), (state.input,)
        checkpointed = request.checkpointed and self.compilation.budget is None
        for index, own in self._custom.items():
            own.module.train(self.train and not request.case.layers[index].eval)
        if not self.compilation.around:
            return self._call(0, end, self._made if checkpointed else (), *values)
        layer = 0
        for segment in self._made:
            if layer < segment.begin:
                values = self._call(layer, segment.begin, (), *values)
            layer = segment.end
            nested = segment.nested if checkpointed else ()
            run = partial(self._call, segment.begin, segment.end, nested)
            values = checkpoint(run, *values, **segment.options) if checkpointed else run(*values)
        return self._call(layer, end, (), *values) if layer < end else values

    def _call(self, begin: int, end: int, segments: Segments, *values: Tensor) -> Values:
        """Runs the layers [begin, end) in a compiled function."""
        budgeted = self.request.checkpointed and self.compilation.budget is not None
        flags = tuple(value.requires_grad for value in values)
        key = (begin, end, bool(segments), budgeted, flags, torch.is_grad_enabled())
        if key not in self._functions:

            def run(*values: Tensor) -> Values:
                return self._run_range(begin, end, segments, None, values)

            self._functions[key] = self.compilation.compile(run, budgeted)
        return self._functions[key](*values)

    def _run_layer(self, index: int, state: Any, values: Values) -> Values:
        wiring, layer = self.wirings[index], self.request.case.layers[index]
        operands = [values[at] for at in wiring.operands]
        with annotate({"layer": index}):
            own = self._custom.get(index)
            if own is None:
                weights, buffers = self._parameters_of[index], self._buffers_of[index]
                run = self._layers[layer.kind]
                outputs = run(layer, operands, weights, buffers, self.train)
            else:
                train = self.train and not layer.eval
                if own.module.training != train:
                    own.module.train(train)
                # A copy, since the harness knows of it that it makes a new value.
                outputs = (self._calls[index](own.module, Dense.apply(operands[0])).clone(),)
        return tuple([outputs[at] if made else values[at] for made, at in wiring.after])

    def _run_checkpoint(self, segment: Any, state: Any, values: Values) -> Values:
        def run(*inputs: Tensor) -> Values:
            return self._run_range(segment.begin, segment.end, segment.nested, state, inputs)

        return checkpoint(run, *values, **segment.options)

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


def _function(layer: CustomLayer) -> Callable[[nn.Module, Tensor], Tensor]:
    """How the layer is called, as a function without eval()."""
    return eval(f"lambda m, x: {layer.call}", layer.names)


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
        super().__init__(name, variant=variant, observe="cheap", layers=_LAYERS)
        self.exports = False
        # To compile kernels takes longest.
        self.cases_per_shape = 200 if compilation.backend == "inductor" else 50
        self._compilation = compilation
        self._compiled: dict[Hashable, CompiledModel] = {}
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
        structure = (
            replace(case, seed=0, protocol=protocol),
            request.model,
            request.checkpointed,
            request.detached_layers,
        )
        model = CompiledModel(
            request, wirings, watch, custom=self._custom, compilation=self._compilation
        )
        first = self._compiled.pop(structure, None)
        if first is not None:
            model = first.take_over(model)
        # The one that was used last comes last.
        self._compiled[structure] = model
        if len(self._compiled) > KEPT:
            del self._compiled[next(iter(self._compiled))]
        return model

    def _keep_promise(self, case: Case, record: Record) -> None:
        """Those are kept by eager runs."""

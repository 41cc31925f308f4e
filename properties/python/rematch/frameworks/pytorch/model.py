"""The model of a case in PyTorch: its layers as functions from one boundary to the next."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any

import numpy
import torch
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop

from rematch.frameworks.pytorch.arguments import DECORATOR, FORM, Values, flat, handed, keywords_of, nested, received
from rematch.frameworks.pytorch.custom import CustomLayer, instances_of, state_of, to_one
from rematch.frameworks.pytorch.layers import function_of
from rematch.frameworks.pytorch.operators import POLICY, contexts_by, policy_of
from rematch.frameworks.pytorch.policy import contexts_for, kept_layers
from rematch.frameworks.pytorch.watch import Place, Watch
from rematch.subjects.case import Case, Choice, Layer, Model, Segment
from rematch.subjects.protocol import Request
from rematch.subjects.steps import TrialError


def generators_of(layers: Sequence[Layer], seed: int) -> list[Generator]:
    """The default generator and one for every further stream, all of which begin at `seed`, as do
    those of Python and NumPy."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    further = max((layer.stream for layer in layers), default=0)
    generators = [torch.default_generator, *(Generator() for _ in range(further))]
    for generator in generators:
        generator.manual_seed(seed)
    return generators


Function = Callable[..., Any]
Checkpoint = Callable[..., Any]
"""A function with the signature of torch.utils.checkpoint.checkpoint()."""
HAS_DEFAULT = {n for n, p in signature(checkpoint).parameters.items() if p.default is not p.empty}


@dataclass
class Forward:
    """One forward: which one it is, and how often each layer was entered on its behalf."""

    step: int
    microbatch: int
    executions: list[int]
    inputs: list[Tensor] = field(default_factory=list)
    """Inputs of the model."""
    losses: list[Tensor] = field(default_factory=list)
    """Losses that require grad."""


@dataclass(frozen=True)
class Block:
    """A segment as a function, for a checkpoint() that is not PyTorch's own."""

    model: "TorchModel"
    segment: Segment
    state: Forward

    def __call__(self, *inputs: Tensor) -> Any:
        return self.model._run_segment(self.segment, *inputs, state=self.state)

    def held(self) -> list[Tensor | nn.Module]:
        """The parameters and modules that it closes over."""
        return self.model.held_by(self.segment)


@dataclass(frozen=True)
class Wiring:
    """Where a layer finds its operands among the values before it, and what makes up the values
    after it: its own outputs (True, output) and values that were there (False, position)."""

    operands: tuple[int, ...]
    after: tuple[tuple[bool, int], ...]


def wire(case: Case, model: Model) -> list[Wiring]:
    """The wiring of every layer. Raises ValueError for a value that is not live where needed."""
    wirings = []
    for index, layer in enumerate(case.layers):
        before, after = model.live[index], model.live[index + 1]
        operands = (0, *(before.index(value) for value in layer.operands))
        made = tuple(
            (True, output) if source == index else (False, before.index((source, output))) for source, output in after
        )
        wirings.append(Wiring(operands, made))
    return wirings


@dataclass
class Injection:
    """A failure of a layer; see InjectedFailure in properties/case/case.h."""

    kind: str = "none"
    layer: int = -1

    def applied_to(self, layer: Layer, forward: bool) -> Layer:
        """Returns the layer that runs in the place of `layer`. Raises TrialError where it
        fails."""
        if self.kind == ("forward_throws" if forward else "recomputation_throws"):
            raise TrialError(f"[trial] layer {self.layer} fails")
        if self.kind != "op_exchanged" or forward:
            return layer
        return replace(layer, kind="sigmoid" if layer.kind == "tanh" else "tanh")


@dataclass
class TorchModel:
    """A model bound to one run: parameters and buffers of its own."""

    request: Request
    wirings: list[Wiring]
    watch: Watch
    checkpoint: Checkpoint = checkpoint
    injection: Injection = field(default_factory=Injection)
    custom: Mapping[str, CustomLayer] = field(default_factory=dict)
    """The subject's own layers, by their declarations."""

    def __post_init__(self) -> None:
        case, model, arrays = self.request.case, self.request.model, self.request.arrays
        self.train = case.protocol.train
        self._custom = instances_of(self.request, self.custom)
        # Not from_numpy(): kernels round by how memory is aligned, and this is PyTorch's.
        self.parameters: list[Tensor] = [
            nn.Parameter(torch.tensor(array), requires_grad=not info.frozen)
            for array, info in zip(arrays.parameters, model.parameters, strict=True)
        ]
        self.buffers = [torch.tensor(a) for a in arrays.buffers]
        self.generators = generators_of(case.layers, case.seed)
        self._parameters_of = self._parameters_by_layer()
        self._buffers_of: list[list[Tensor]] = [[] for _ in case.layers]
        for buffer, info in zip(self.buffers, model.buffers, strict=True):
            self._buffers_of[info.layer].append(buffer)
        kept = {keep.op for choice in case.choices() for keep in choice.keep}
        self._native_dropout = "dropout" in kept
        self._run_of = self._computes(self.train)
        self._own = self.checkpoint is checkpoint
        self._nests = any(segment.nested for segment in case.plan.segments)

    def _parameters_by_layer(self) -> list[list[Tensor]]:
        detached = self.request.detached_layers
        return [
            [self.parameters[p].detach() if layer in detached else self.parameters[p] for p in used]
            for layer, used in enumerate(self.request.model.layer_parameters)
        ]

    def trained(self) -> list[list[Tensor]]:
        """The tensors that make up each parameter: one, or all of a custom layer."""
        groups = [[p] for p in self.parameters]
        for group, info in zip(groups, self.request.model.parameters, strict=True):
            if own := self._custom.get(info.layer):
                group[:] = own.module.parameters()
        return groups

    def all_tensors(self) -> Iterator[Tensor]:
        """Parameters and buffers, those within custom layers included."""
        yield from (*self.parameters, *self.buffers)
        for own in self._custom.values():
            yield from own.module.parameters()
            yield from own.module.buffers()

    def held_by(self, segment: Segment) -> list[Tensor | nn.Module]:
        """The parameters and the modules of the subject's own that a segment uses."""
        layers = range(segment.begin, segment.end)
        modules = [self._custom[i].module for i in layers if i in self._custom]
        return [*modules, *(p for i in layers for p in self._parameters_of[i])]

    def buffer(self, index: int) -> Tensor:
        """A buffer as it is now: one, or all state of a custom layer."""
        layer = self.request.model.buffers[index].layer
        own = self._custom.get(layer)
        return self.buffers[index] if own is None else to_one(state_of(own.module))

    def forward(self, state: Forward) -> Values:
        """The model's outputs under the request's plan. `state` must outlive the graph."""
        return self._run_model(state, tuple(state.inputs))

    def _run_model(self, state: Forward, values: Values) -> Values:
        case = self.request.case
        if not self.request.checkpointed:
            return self._run_range(0, len(case.layers), (), state, values)
        if case.plan.sequential is not None:
            return self._run_sequential(state, values)
        return self._run_range(0, len(case.layers), case.plan.segments, state, values)

    def microbatch(self, last: bool) -> AbstractContextManager[Any]:
        """Surrounds the forward and the backward of a microbatch, of a step's last one or not."""
        return nullcontext()

    def ones(self, parameter: Tensor) -> Tensor:
        """A gradient of a parameter from before."""
        return torch.ones_like(parameter)

    def shown(self, t: Tensor) -> Tensor:
        """What this process shows of a parameter or its gradient."""
        return t

    @torch.no_grad()
    def evaluate(self, inputs: Sequence[Tensor], run: Callable[[Forward], Values] | None = None) -> Tensor:
        """The first output in evaluation mode and unrecorded: without a plan, unless it is that of `run`."""
        trained, self.train = self.train, False
        run_of, self._run_of = self._run_of, self._computes(False)
        watch, self.watch = self.watch, Watch()
        modes = [(own.module, own.module.training) for own in self._custom.values()]
        layers = len(self.request.case.layers)
        state = Forward(-1, 0, [0] * layers, list(inputs))
        outputs = (run or self._run_plain)(state)
        self.train, self._run_of, self.watch = trained, run_of, watch
        # A module that checkpoints its own blocks recomputes them without being entered again.
        for module, mode in modes:
            module.train(mode)
        return outputs[0]

    def _run_plain(self, state: Forward) -> Values:
        return self._run_range(0, len(self.request.case.layers), (), state, tuple(state.inputs))

    def note_promises(self) -> None:
        """Notes, at the end of a run, what it tells of promises."""
        self.watch.note_policies()

    def without_plan(self, state: Forward) -> Values:
        """The model's outputs as a plan may not change them."""
        return self._run_plain(state)

    def _run_layer(self, index: int, state: Forward, values: Values) -> Values:
        wiring = self.wirings[index]
        execution = state.executions[index]
        state.executions[index] += 1
        layer = self.request.case.layers[index]
        place = Place(index, layer.kind, execution, state.step, state.microbatch, layer.stream)
        outer = self.watch.enter(place)
        try:
            run = self._run_of[index]
            if index == self.injection.layer:
                other = self.injection.applied_to(layer, forward=execution == 0)
                if run is not None and other is not layer:
                    run = self._function(index, other, self.train)
            operands = [values[at] for at in wiring.operands]
            outputs: Sequence[Tensor]
            if run is None:
                own = self._custom[index]
                outputs = (own.run(operands[0], layer.trains(self.train)),)
                self.watch.replaced(own.module.buffers())
            else:
                outputs = self._compute(index, run, operands)
            self.watch.returned(operands, outputs)
        finally:
            self.watch.leave(outer)
        return tuple([outputs[at] if made else values[at] for made, at in wiring.after])

    def _computes(self, train: bool) -> list[Function | None]:
        """Functions that compute the layers; None for the subject's own."""
        return [
            None if index in self._custom else self._function(index, layer, train)
            for index, layer in enumerate(self.request.case.layers)
        ]

    def _function(self, index: int, layer: Layer, train: bool) -> Function:
        """The function that computes `layer` in the place of layer `index`."""
        counts = len(self.request.model.layer_parameters[index]), len(self._buffers_of[index])
        rank = self.request.case.rank_of(index)
        return function_of(layer, train, *counts, rank, self._native_dropout)

    def _compute(self, index: int, run: Function, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        stream = self.request.case.layers[index].stream
        generator = self.generators[stream] if stream else None
        return run(*operands, generator, *self._parameters_of[index], *self._buffers_of[index])

    def _run_range(self, begin: int, end: int, segments: Sequence[Segment], state: Forward, values: Values) -> Values:
        layer = begin
        for segment in segments:
            for index in range(layer, segment.begin):
                values = self._run_layer(index, state, values)

            values = self._run_checkpoint(segment, state, values)
            layer = segment.end
        for index in range(layer, end):
            values = self._run_layer(index, state, values)
        return values

    def _run_handed(self, segment: Segment, *given: Any, state: Forward, **keywords: Any) -> Any:
        count = len(self.request.model.live[segment.begin])
        inputs = received(segment.choice.arguments, count, given, keywords)
        return self._run_segment(segment, *inputs, state=state)

    def _run_segment(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        outputs = self._run_range(segment.begin, segment.end, segment.nested, state, inputs)
        if self._own and segment.choice.nested_outputs:
            return nested(outputs)
        # PyTorch's own hands back what is no tensor as it is.
        return _bare(outputs) if len(outputs) == 1 or not self._own else (*outputs, segment)

    def _run_checkpoint(self, segment: Segment, state: Forward, values: Values) -> Values:
        choice = segment.choice
        options = self._options(segment)
        self._goes_by_operators(segment)
        with self._early_stop(choice, options):
            if not self._own:
                block = Block(self, segment, state)
                return values_of(self.checkpoint(block, *values, **options))
            # PyTorch's own takes more than tensors, and makes decorators.
            run: Function = self._run_handed
            given, keywords = handed(choice.arguments, values)
            if choice.reentrant:
                run = partial(run, state=state)
            else:
                keywords["state"] = state
            if self.request.case.options.get(FORM) == DECORATOR:
                returned = self.checkpoint(**options)(run)(segment, *given, **keywords)
            else:
                returned = self.checkpoint(run, segment, *given, **options, **keywords)
            return flat(returned) if choice.nested_outputs else values_of(returned)

    def _options(self, segment: Segment) -> dict[str, Any]:
        """What checkpoint() is told of the segment."""
        choice = segment.choice
        options = keywords_of(choice)
        if not choice.reentrant and choice.keep:
            kept = kept_layers(self.request.case, choice, segment.begin, segment.end)
            options |= contexts_for(kept, self.watch, self._takes_hooks_option())
        if policy := policy_of(self.request.case, segment):
            options["context_fn"] = contexts_by(policy, self.watch)
        return options

    def _takes_hooks_option(self) -> bool:
        return self._own

    def _goes_by_operators(self, segment: Segment) -> None:
        if policy_of(self.request.case, segment):
            self.watch.goes_by_operators(segment.begin, segment.end, self.request.case.plan.offload)

    def _early_stop(self, choice: Choice, options: dict[str, Any]) -> AbstractContextManager[Any]:
        """Says it by the option where there is one and no scope could override it, by a scope
        elsewhere. The reentrant variant has none, and no scope is to reach into what it nests."""
        if self._own and "early_stop" in HAS_DEFAULT and not self._nests:
            return nullcontext()
        options.pop("early_stop", None)
        return nullcontext() if choice.reentrant else set_checkpoint_early_stop(choice.early_stop)

    def _run_sequential(self, state: Forward, values: Values) -> Values:
        plan = self.request.case.plan.sequential
        assert plan is not None
        layers = len(self.request.case.layers)
        segments = self.request.case.plan.cut(layers)
        if self._own and self._can_say(plan.choice, [segment.end for segment in segments]):
            functions = [self._layer_function(i, state) for i in range(layers)]
            with set_checkpoint_early_stop(plan.choice.early_stop):
                outputs = checkpoint_sequential(
                    functions,
                    plan.segments,
                    values[0],
                    use_reentrant=plan.choice.reentrant,
                    preserve_rng_state=plan.choice.preserve_rng,
                )
            return values_of(outputs)
        return self._run_range(0, layers, segments, state, values)

    def _can_say(self, choice: Choice, borders: Sequence[int]) -> bool:
        """Whether checkpoint_sequential() has that choice, and one value enters the model and
        crosses each border: it hands on one argument, and tensors within a tuple would not be
        seen."""
        live = self.request.model.live
        one = all(len(live[border]) == 1 for border in (0, *borders))
        policies = choice.keep or POLICY in self.request.case.options
        usual = choice.reentrant or (choice.determinism != "none" and not policies)
        return one and usual

    def _layer_function(self, index: int, state: Forward) -> Function:
        return lambda given: _bare(self._run_layer(index, state, values_of(given)))


def _bare(values: Values) -> Any:
    """One value by itself, several as a tuple: what a function of a user's would return."""
    return values[0] if len(values) == 1 else values


def values_of(returned: Any) -> Values:
    if isinstance(returned, Tensor):
        return (returned,)
    return tuple(value for value in returned if isinstance(value, Tensor))

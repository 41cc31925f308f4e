"""PyTorch compiled: models whose layers run within functions of torch.compile()."""

import logging
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch._dynamo.config as dynamo_config
import torch._dynamo.guards as guards
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._dynamo import compiled_autograd
from torch.fx.traceback import annotate, get_current_meta
from torch.utils.checkpoint import CheckpointPolicy, checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts as contexts_of

from rematch.frameworks.pytorch import arguments
from rematch.frameworks.pytorch.compilation import Compilation, partitioner
from rematch.frameworks.pytorch.compiled_draws import PROMISES
from rematch.frameworks.pytorch.layers import Dense
from rematch.frameworks.pytorch.library import library
from rematch.frameworks.pytorch.model import Forward, TorchModel, Values, Wiring
from rematch.frameworks.pytorch.modules import BREAKING, IN_PLACE, MODULES
from rematch.frameworks.pytorch.operators import INFERENCE, POLICY, contexts_by, policy_of
from rematch.frameworks.pytorch.policy import is_final, kept_layers
from rematch.frameworks.pytorch.subject import TorchSubject
from rematch.frameworks.pytorch.watch import Watch
from rematch.subjects.case import Segment, shape_of
from rematch.subjects.export import Finding
from rematch.subjects.framework import Framework
from rematch.subjects.promises import script_of
from rematch.subjects.protocol import Request

KEPT = 16
"""How many models stay compiled: the plain and the checkpointed ones of the last structures."""

LAYERS = (*(layer for layer in MODULES if layer.name not in BREAKING), IN_PLACE)
NOT_COMPILED = {"injected_failure", "failure_in_segment", "named_stream"}
"""Features that are judged in eager runs only."""
OF_PLANS = ("reentrant", "mixed", "preserve", "fresh", "selective", "kept_draw", "no_check")
OF_PLANS += ("early_stop_off", "sequential", "nested")
"""How features begin that mean nothing where a budget takes the place of the plan."""
GRAPHS = "graphs"
SEVERAL, BROKEN = "several", "several, and within segments"
"""The option of cases whose functions have graph breaks: between their segments, or within them as well."""
SHAPES, SYMBOLS = "shapes", "symbols"
"""The option of cases that are compiled for all sizes. Otherwise torch.compile() would choose that for what has the
name and the line of a function that it compiled before, which here all have."""
HOOKS = "hooks"
"""The option of cases whose segments have hooks on what they return. Only under compiled autograd do graphs know of
them."""
BUDGET = "budget"
"""The option of cases with another activation_memory_budget than the subject's."""
PARTITION = "partition"
"""The promise that graphs save and recompute what they say."""
UNSEEN = {"grad_flags", "injected_failures"}
"""Observables that cannot be seen from outside of a compiled function."""


@dataclass
class _Segment:
    """A segment of the plan and the options of its checkpoint()."""

    begin: int
    end: int
    options: dict[str, Any]
    nested: "tuple[_Segment, ...]"


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
        self._wrong: list[str] = []
        cut = self.request.case.plan.cut(len(self.request.case.layers))
        self._made: Segments = tuple(map(self._with_options, cut))

    def take_over(self, other: "CompiledModel") -> "CompiledModel":
        """This model, with the request and the tensors of `other`."""
        kept = ("_functions", "_calls", "_made", "_wrong")
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

    def note_promises(self) -> None:
        super().note_promises()
        if self._hooks():
            compiled_autograd.reset()
        # A budget draws again, and nothing else is said of it.
        if self.request.checkpointed and self.compilation.budget is None:
            self.watch.record.add("promises", name=PARTITION, broken=next(filter(None, self._wrong), ""))

    def microbatch(self, last: bool) -> AbstractContextManager[Any]:
        return compiled_autograd._enable(_as_it_is) if self._hooks() else super().microbatch(last)

    def _hooks(self) -> bool:
        """Whether segments have hooks, and each backward follows its forward."""
        case, protocol = self.request.case, self.request.case.protocol
        several = protocol.backwards > 1 or protocol.partial or protocol.auxiliary_losses or protocol.forwards_first
        return HOOKS in case.options and GRAPHS not in case.options and not several

    def without_plan(self, state: Forward) -> Values:
        # Compiled code may round differently.
        return self._call(0, len(self.request.case.layers), (), *state.inputs)

    def _call(self, begin: int, end: int, segments: Segments, *values: Tensor) -> Values:
        """Runs the layers [begin, end) in a compiled function."""
        flags = tuple(value.requires_grad for value in values)
        modes = self.train, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        key = (begin, end, bool(segments), flags, modes)
        if key not in self._functions:
            whole = GRAPHS not in self.request.case.options
            run = self._layers(begin, end, segments) if whole else self._broken(begin, end, bool(segments))
            symbols = SHAPES in self.request.case.options
            self._functions[key] = self.compilation.compile(run, self.request.checkpointed, whole, symbols, self._wrong)
        return self._functions[key](*values)

    def _layers(self, begin: int, end: int, segments: Segments = ()) -> Callable[..., Values]:
        return lambda *values: self._run_range(begin, end, segments, None, values)

    def _broken(self, begin: int, end: int, checkpointed: bool) -> Callable[..., Values]:
        """A function with graph breaks, the same with and without checkpoint(): a graph adds up the gradients of what
        it uses several times, so that other breaks round otherwise. Each has code of its own, as compiled code
        belongs to that: a break within what others share, a layer's function say, is an error."""
        names: dict[str, Any] = {"graph_break": torch._dynamo.graph_break, "checkpoint": checkpoint}
        names["whole"] = torch._dynamo.error_on_graph_break
        within = self.request.case.options[GRAPHS] == BROKEN
        functions, lines, layer = [], [], begin
        apart = self.compilation.around or self.compilation.budget is not None
        segments = () if apart else self._made

        def called(*ranges: tuple[int, int]) -> list[str]:
            for begin, end in ranges:
                names[f"layers_{begin}_{end}"] = self._layers(begin, end)
            return [f"with whole(True): values = layers_{begin}_{end}(*values)" for begin, end in ranges]

        def broken(name: str, lines: list[str]) -> str:
            body = "\n    graph_break()\n    ".join([*lines, "return values"])
            return f"def {name}(*values):\n    {body}\n"

        for at, segment in enumerate(segments):
            lines += called((layer, segment.begin)) if layer < segment.begin else []
            layer, middle = segment.end, (segment.begin + segment.end) // 2
            if within and not segment.nested and middle > segment.begin:
                functions.append(broken(f"segment_{at}", called((segment.begin, middle), (middle, segment.end))))
                names[f"options_{at}"] = segment.options
                run = f"checkpoint(segment_{at}, *values, **options_{at})" if checkpointed else f"segment_{at}(*values)"
                lines.append(f"values = {run}")
            elif not checkpointed:
                lines += called((segment.begin, segment.end))
            else:
                names[f"segment_{at}"] = partial(self._run_checkpoint, segment, None)
                lines.append(f"with whole(True): values = segment_{at}(values)")
        middle = layer if segments else (layer + end) // 2
        lines += called(*[r for r in ((layer, middle), (middle, end)) if r[0] < r[1]])
        exec("\n".join([*functions, broken("run", lines)]), names)
        return names["run"]

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
        made = [made for made, _ in self.wirings[segment.end - 1].after]

        def run(*inputs: Tensor) -> Values:
            outputs = self._run_range(segment.begin, segment.end, segment.nested, state, inputs)
            for output, own in zip(outputs, made, strict=True):
                if self._hooks() and own and output.requires_grad:
                    output.register_hook(_as_it_is)
            return outputs

        return checkpoint(run, *values, **segment.options)

    def _with_options(self, segment: Segment) -> _Segment:
        choice = segment.choice
        options = arguments.keywords_of(choice)
        if not choice.reentrant and choice.keep:
            kept = kept_layers(self.request.case, choice, segment.begin, segment.end)
            options["context_fn"] = partial(contexts_of, partial(_policy, kept))
        elif policy := policy_of(self.request.case, segment):
            options["context_fn"] = contexts_by(policy, self.watch)
        nested = map(self._with_options, segment.nested)
        return _Segment(segment.begin, segment.end, options, tuple(nested))


def _as_it_is(given: Any) -> Any:
    return given


def _policy(kept: frozenset[int], context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    """Keeps the results of the layers `kept`."""
    layer = get_current_meta().get("custom", {}).get("layer")
    return CheckpointPolicy.MUST_SAVE if layer in kept and is_final(op) else CheckpointPolicy.PREFER_RECOMPUTE


class CompiledSubject(TorchSubject):
    """PyTorch on the CPU, compiled, on one thread. `variant` as in TorchSubject."""

    profile = ""
    tries_promises = False
    checkpoint_function = "lambda run, **o: partial(checkpoint, run, **{'use_reentrant': False, **o})"
    imports = f"{TorchSubject.imports}\nfrom functools import partial\nfrom torch.utils.checkpoint import checkpoint"

    def __init__(self, compilation: Compilation, variant: str = "both") -> None:
        budget = "" if compilation.budget is None else f" budget {compilation.budget:g}"
        words = f"{compilation.backend}{' around' if compilation.around else ''}{budget}"
        words += " with its defaults" if compilation.defaults else ""
        name = f"torch {torch.__version__.split('+')[0]} {words}"
        # Segments are compiled with the tensors that they take and return.
        lacks = arguments.FEATURES
        # Fused kernels of inductor may round what torch.nn computes by several operators.
        layers = LAYERS if compilation.backend == "inductor" else (*LAYERS, *library())
        super().__init__(name, variant=variant, observe="saved", layers=layers, lacks=lacks)
        self._without(arguments.FORM)
        if compilation.around or compilation.budget is not None:
            # A policy is a dispatch mode, under which nothing is compiled.
            self._without(POLICY)
        elif POLICY in self.options:
            # Marks of nodes are what graphs are split by, and reentrant or nested segments have no policy.
            self.shares[POLICY] = 0.8
        # In a script, the forward is compiled as a whole and its checkpoint() with it.
        self.exports = not compilation.around and compilation.budget is None
        self.options[GRAPHS], self.shares[GRAPHS] = ["one", SEVERAL, BROKEN], 0.2
        self.options[SHAPES], self.shares[SHAPES] = ["numbers", SYMBOLS], 0.1
        if compilation.backend == "aot_eager" and self.exports:
            self.options[HOOKS], self.shares[HOOKS] = ["none", "on outputs of segments"], 0.15
        if compilation.budget is not None:
            usual = f"{compilation.budget:g}"
            others = [b for b in ("0", "0.25", "0.5", "0.75", "1") if b != usual]
            self.options[BUDGET], self.shares[BUDGET] = [usual, *others], 0.8
        self.cases_per_shape = 2
        self._compilation = compilation
        self._compiled: dict[Hashable, CompiledModel] = {}
        inductor_config.compile_threads = 1
        if compilation.backend == "inductor" and not compilation.defaults:
            # What has a break within a checkpoint runs eagerly, and eager kernels round otherwise.
            self.options[GRAPHS].remove(BROKEN)
        if compilation.defaults:
            self.rounds, self.may_vary = "differently", True
            # Evaluations are compared to the bit.
            self._without(INFERENCE)
            self._promises = {promise.__name__: promise for promise in PROMISES}
            self.promises = PROMISES
            self._tries(self._promises, 0.2)
        else:
            inductor_config.fallback_random = True
            # Kernels are compiled in half the time, and round alike wherever they are fused.
            inductor_config.cpp.simdlen = 1
            inductor_config.emulate_precision_casts = True
            # Whether convolutions take channels last, and round so, depends on what else is in their graph.
            inductor_config.layout_optimization = False
        # As they are where one graph is asked for.
        dynamo_config.capture_dynamic_output_shape_ops = dynamo_config.capture_scalar_outputs = True
        inductor_config.custom_partitioner_fn = partitioner
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
        # Nesting is for graphs.
        apart = ("selective", "kept_draw", "nested") if self._compilation.around else ()
        return [f for f in found if not f.startswith(apart)]

    def broken(self, promise: str) -> str:
        return Framework.broken(self, promise)

    def observes(self, observables: Sequence[str]) -> list[str]:
        return [o for o in super().observes(observables) if o not in UNSEEN]

    def _model(self, request: Request, wirings: list[Wiring], watch: Watch) -> TorchModel:
        case = request.case
        chosen = tuple((name, case.options.get(name)) for name in (POLICY, GRAPHS, INFERENCE, SHAPES, BUDGET, HOOKS))
        structure = shape_of(case), chosen, request.model, request.checkpointed, request.detached_layers
        how = self._compilation
        if BUDGET in case.options:
            how = replace(how, budget=float(case.options[BUDGET]))
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

        if Finding.read(finding).law == "promises" and self.promises:
            return script_of(self, finding)
        backend = self._compilation.backend
        options = ', options={"fallback_random": True}' if backend == "inductor" else ""
        decorator = f'@torch.compile(backend="{backend}", fullgraph=True{options})'
        return export(request, finding, "", self.modules_by_declaration, decorator)

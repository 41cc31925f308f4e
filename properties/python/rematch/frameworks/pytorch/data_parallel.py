"""PyTorch's data parallelism as subjects: DistributedDataParallel and fully_shard() around segments
that are checkpointed, each rank with its share of the rows of the case's batch.

What the ranks show is joined, and must be what one process would show with the whole batch. Within
which bounds is for the harness's reference to say: gradients are means over ranks, whose numbers
are powers of two, so that no division rounds. The checkpointed run on as many ranks must have the
bits of the plain one: every parameter has the same place in what is reduced, by which gloo chooses
the order of summation.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch._dynamo  # noqa: F401  Imported now, once, and not by every rank.
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from rematch.case import Case, Model, Segment
from rematch.frameworks.pytorch.agreement import Answer, difference, join, strayed
from rematch.frameworks.pytorch.collectives import Collectives, Unit, padded
from rematch.frameworks.pytorch.export_parallel import export_parallel
from rematch.frameworks.pytorch.memory import Memory
from rematch.frameworks.pytorch.model import Forward, TorchModel, Values, wire
from rematch.frameworks.pytorch.modules import MODULES
from rematch.frameworks.pytorch.ranks import Lost, Ranks
from rematch.frameworks.pytorch.run import TorchRun
from rematch.frameworks.pytorch.setup import OPTIONS, SHARES, Setup, setup_of
from rematch.frameworks.pytorch.subject import TorchSubject
from rematch.frameworks.pytorch.trial import put_back
from rematch.frameworks.pytorch.watch import Saves
from rematch.protocol import Arrays, Request, Unsupported
from rematch.record import Record

# A rank normalizes and counts by its own rows, which the harness's reference does not know. Samples of the subject's
# own do so, too.
OF_THE_BATCH = {"batch_norm", "moe", "delayed_scaling", "fp8", "kv_cache", "advancing_state"}
# A backward for some tensors does not reach parameters of FSDP2, which are other tensors while they are whole, and
# reductions of DDP belong to one backward that follows its forward.
OF_BACKWARDS = {"partial_backwards"}
OF_ONE_BACKWARD = OF_BACKWARDS | {"forwards_first", "retain_graph", "several_losses"}
ALONE = {"injected_failure", "failure_in_segment"}
# Where a module of the subject's own draws anew is foreseen from its draws, which are not observed.
ALONE |= {"preserve_rng_off", "fresh_draws"}
# There is nothing to share.
ALONE |= {"one_row"}
LACKS = OF_THE_BATCH | ALONE
# DistributedDataParallel refuses a model without what trains.
LACKS_OF = {"ddp": LACKS | OF_ONE_BACKWARD | {"nothing_trains"}, "fsdp2": LACKS | OF_BACKWARDS}
"""Features that cases do not have."""
# A forward that normalizes the rows that it reads changes parameters by its rank's.
LAYERS = tuple(layer for layer in MODULES if layer.name != "embedding_max_norm")


@dataclass
class ParallelModel(TorchModel):
    """A model whose parameters are those of a module that is run in parallel."""

    setup: Setup | None = None
    group: dist.ProcessGroup | None = None
    seen: Collectives | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._root: nn.Module = Unit()
        self._made_of = [self._root] * len(self.request.case.layers)
        """The module that each layer belongs to."""
        self._place_segments()
        infos = enumerate(self.request.model.parameters)
        # Those of modules of the subject's own are part of these.
        self._bare = [index for index, info in infos if info.layer not in self._custom]
        for index in self._bare:
            self._place(index).register_parameter(f"p{index}", self.parameters[index])
        for layer, own in self._custom.items():
            self._made_of[layer].add_module(f"m{layer}", own.module)
        self._wrap()

    def _place_segments(self) -> None:
        """Gives segments modules of their own."""

    def _wrap(self) -> None:
        raise NotImplementedError

    def _is_recomputed(self, unit: nn.Module) -> bool:
        """Whether a recomputation runs it."""
        return False

    def begins_backward(self, state: Forward) -> None:
        """Is called ahead of the backwards of a forward."""

    def note_kept(self) -> None:
        """Notes what is still gathered."""

    def _place(self, parameter: int) -> nn.Module:
        """That of all layers that use it, or the root."""
        used = self.request.model.layer_parameters
        places = {self._made_of[i] for i, its in enumerate(used) if parameter in its}
        return places.pop() if len(places) == 1 else self._root

    def _announce(self, units: dict[nn.Module, range], size: Callable[[Tensor], int], **says: bool) -> None:
        """Notes what units there are and which layers run in each, the root first, and how large the parts of their
        parameters are in a collective."""
        assert self.seen is not None and self.setup is not None
        record, setup = self.seen.record, self.setup
        says |= {"accumulates": setup.no_sync, "learns": setup.mode == "static_graph"}
        for number, (unit, layers) in enumerate(units.items()):
            self.seen.layers[number] = layers
            stays, inner = setup.stays(number), self._is_recomputed(unit)
            record.unit(number, layers.start, layers.stop, stays=stays, recomputed=inner, **says)
        numbers = {unit: number for number, unit in enumerate(units)}
        infos = self.request.model.parameters
        for index, (parts, info) in enumerate(zip(TorchModel.trained(self), infos, strict=True)):
            unit = self._made_of[info.layer] if info.layer in self._custom else self._place(index)
            record.shard(numbers[unit], index, sum(map(size, parts)))

    def _run_segment(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        assert self.seen is not None
        with self.seen.segment(segment.begin, segment.end):
            return self._run_within(segment, *inputs, state=state)

    def _run_within(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        return super()._run_segment(segment, *inputs, state=state)

    def _layer_function(self, index: int, state: Forward) -> Callable[..., Any]:
        run, seen = super()._layer_function(index, state), self.seen

        def runs(given: Any) -> Any:
            assert seen is not None
            with seen.segment(index, index + 1):
                return run(given)

        return runs

    def phase(self, name: str, state: Forward) -> AbstractContextManager[Any]:
        assert self.seen is not None
        return self.seen.phase(name, step=state.step, microbatch=state.microbatch)

    def forward(self, state: Forward) -> Values:
        with self.phase("forward", state):
            return self._run_root(state)

    def _run_root(self, state: Forward) -> Values:
        raise NotImplementedError


@dataclass
class DdpModel(ParallelModel):
    """A model within DistributedDataParallel."""

    def _wrap(self) -> None:
        assert self.setup is not None
        if not any(p.requires_grad for p in self._root.parameters()):
            raise Unsupported("DistributedDataParallel refuses a model without what trains")
        everything = range(len(self.request.case.layers))
        self._announce({self._root: everything}, lambda p: p.nbytes if p.requires_grad else 0, replicated=True)
        assert self.seen is not None
        # There is no other unit, whatever sends.
        self.seen.unit = 0
        options: dict[str, Any] = {} if self.setup.buckets else {"bucket_cap_mb": 1e-6}
        if self.setup.mode != "default":
            options[self.setup.mode] = True
        self._root = DistributedDataParallel(self._root, process_group=self.group, **options)
        # A static graph is learned from a backward that reduces: before one, no_sync() ends in an
        # internal assertion, without checkpoints, too.
        self._learns = self.setup.mode == "static_graph"

    def _run_root(self, state: Forward) -> Values:
        rest: list[Tensor] = []

        def run(*inputs: Tensor) -> Tensor:
            first, *rest[:] = self._run_model(state, inputs)
            return first

        # DDP takes all that a module returns for part of a loss.
        return (self._root(run, *state.inputs), *rest)

    def microbatch(self, last: bool) -> AbstractContextManager[Any]:
        assert self.setup is not None
        reduces = last or self._learns or not self.setup.no_sync
        self._learns = False
        return nullcontext() if reduces else self._root.no_sync()


class _Now(list[Any]):
    """The parameters of layers as they are when they are asked for."""

    def __init__(self, model: FsdpModel) -> None:
        super().__init__()
        self._model = model

    def __getitem__(self, layer: Any) -> Any:
        return self._model.now(layer)


@dataclass
class FsdpModel(ParallelModel):
    """A model within fully_shard(), as are segments of the plan, layers, or both, in the plain run, too. What
    several of them share belongs to what they are in."""

    def _place_segments(self) -> None:
        assert self.setup is not None
        self._units: dict[Segment | int, nn.Module] = {}
        self._layers = {self._root: range(len(self._made_of))}
        """What runs in each unit."""
        segments = self.request.case.plan.cut(len(self._made_of))
        self._within = {layer for s in segments for layer in range(s.begin, s.end)}
        if self.setup.units != "layers":
            for number, segment in enumerate(self.request.case.plan.segments):
                self._add(f"segment{number}", segment, range(segment.begin, segment.end))
        if self.setup.units != "segments":
            for layer in self._with_own():
                self._add(f"layer{layer}", layer, range(layer, layer + 1))

    def _with_own(self) -> list[int]:
        """Layers that have parameters for themselves."""
        used = self.request.model.layer_parameters
        uses = Counter(parameter for its in used for parameter in its)
        return [n for n, its in enumerate(used) if n in self._custom or any(uses[p] == 1 for p in its)]

    def _add(self, name: str, key: Segment | int, layers: range) -> None:
        unit = self._units[key] = Unit()
        self._layers[unit] = layers
        self._made_of[layers.start].add_module(name, unit)
        self._made_of[layers.start : layers.stop] = [unit] * len(layers)

    def _place(self, parameter: int) -> nn.Module:
        used = self.request.model.layer_parameters
        users = {i for i, its in enumerate(used) if parameter in its}
        # The innermost comes last.
        return [unit for unit, layers in self._layers.items() if users <= set(layers)][-1 if users else 0]

    def _is_recomputed(self, unit: nn.Module) -> bool:
        assert self.setup is not None
        for key, its in self._units.items():
            if its is unit:
                return key in self._within if isinstance(key, int) else self.setup.mode == "checkpoint around"
        return False

    def _wrap(self) -> None:
        self._parameters_of = _Now(self)
        assert self.group is not None and self.seen is not None and self.setup is not None
        group, setup = self.group, self.setup

        def size(p: Tensor) -> int:
            return padded(p.shape, 2 if setup.low and p.is_floating_point() else p.element_size(), group)

        self._announce(self._layers, size)
        modules = self._modules = tuple(self._layers)
        for module in modules:
            module.remembers(modules)
        mesh = DeviceMesh.from_group(group, "cpu")
        options: dict[str, Any] = {"mesh": mesh}
        if setup.low:
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
        for number, module in reversed(list(enumerate(modules))):
            if setup.reshard != "default":
                options["reshard_after_forward"] = not setup.stays(number)
            fully_shard(module, **options)
            module.told_apart(number, self.seen)
        self._forwards = 0

    def note_kept(self) -> None:
        assert self.seen is not None
        for number, module in enumerate(self._modules):
            if size := module.gathered():
                self.seen.note_kept(number, size)

    def now(self, layer: int) -> list[Tensor]:
        """The parameters of a layer, sharded unless its module runs."""
        used = self.request.model.layer_parameters[layer]
        tensors = [getattr(self._place(p), f"p{p}") for p in used]
        return [t.detach() for t in tensors] if layer in self.request.detached_layers else tensors

    def trained(self) -> list[list[Tensor]]:
        groups = super().trained()
        for index in self._bare:
            groups[index][:] = [getattr(self._place(index), f"p{index}")]
        return groups

    def whole(self, t: Tensor) -> Tensor:
        return t.full_tensor() if isinstance(t, DTensor) else t

    def microbatch(self, last: bool) -> AbstractContextManager[Any]:
        # A forward without a backward leaves units whole, and the next one would not see what the optimizer did to
        # their shards.
        protocol = self.request.case.protocol
        if not protocol.forwards_first or self._forwards % protocol.microbatches == 0:
            for module in self._modules:
                module.reshard()
        self._forwards += 1
        return nullcontext()

    def begins_backward(self, state: Forward) -> None:
        assert self.setup is not None
        protocol = self.request.case.protocol
        last = state.microbatch == (0 if protocol.forwards_first else protocol.microbatches - 1)
        self._root.set_requires_gradient_sync(last or not self.setup.no_sync)
        # Prefetches go on to the forward whose backward is next.
        self._root.set_is_last_backward(last or not protocol.forwards_first)

    def evaluate(self, inputs: Sequence[Tensor]) -> Tensor:
        modules = self._modules
        for module in modules:
            module.reshard()
            module.unshard()
        output = super().evaluate(inputs)
        for module in modules:
            module.reshard()
        return output

    def _run_root(self, state: Forward) -> Values:
        return self._root(self._run_model, state, tuple(state.inputs))

    def _run_model(self, state: Forward, values: Values) -> Values:
        if self.request.checkpointed:
            return super()._run_model(state, values)
        case = self.request.case
        return self._run_range(0, len(case.layers), case.plan.segments, state, values)

    def _run_layer(self, index: int, state: Forward, values: Values) -> Values:
        unit = self._units.get(index)
        run = super()._run_layer
        return run(index, state, values) if unit is None else unit(run, index, state, values)

    def _run_checkpoint(self, segment: Segment, state: Forward, values: Values) -> Values:
        assert self.setup is not None
        unit = self._units.get(segment)
        if not self.request.checkpointed:
            run = self._run_range if unit is None else partial(unit, self._run_range)
            return run(segment.begin, segment.end, (), state, values)
        if unit is None or self.setup.mode == "checkpoint around":
            return super()._run_checkpoint(segment, state, values)
        return unit(super()._run_checkpoint, segment, state, values)

    def _run_within(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        assert self.setup is not None
        unit = self._units.get(segment)
        if unit is None or self.setup.mode != "checkpoint around":
            return super()._run_within(segment, *inputs, state=state)
        return unit(super()._run_within, segment, *inputs, state=state)


class _RunOfRows(TorchRun):
    """The run of a rank, whose loss counts as much as it has rows."""

    share = 1.0

    def backward(self, state: Forward) -> None:
        model, ran = self._model, bool(state.losses)
        model.begins_backward(state)
        with model.phase("backward", state):
            super().backward(state)
            if ran:
                model.note_kept()

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        loss = super()._loss(output, target)
        return loss if self.share == 1 else loss * self.share


def rows_of(arrays: Arrays, rank: int, ranks: int) -> Arrays:
    """The part of a case's data that a rank has."""

    def cut(given: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array_split(array, ranks)[rank] for array in given]

    again = arrays.reevaluation
    return replace(
        arrays,
        inputs=cut(arrays.inputs),
        targets=cut(arrays.targets),
        reevaluation=None if again is None else cut([again])[0],
        further_inputs=[cut(forward) for forward in arrays.further_inputs],
        further_reevaluation_inputs=cut(arrays.further_reevaluation_inputs),
    )


class DataParallelSubject(TorchSubject):
    """PyTorch on several ranks; `kind`: ddp or fsdp2. `limit`: the seconds that a run may take."""

    tries_promises = takes_policies = False

    def __init__(self, kind: str, variant: str = "both", limit: float = 30, **rest: Any) -> None:
        name = f"torch {torch.__version__.split('+')[0]} {kind}"
        rest = {"layers": LAYERS, "lacks": LACKS_OF[kind], **rest}
        super().__init__(name, variant=variant, observe="saved", **rest)
        self.options, self.shares = OPTIONS[kind], SHARES[kind]
        self._kind = kind
        self._limit = limit
        self._ranks = Ranks(self._run_rows, limit)
        self._case: Case | None = None
        self._plain: Sequence[Answer] = ()
        """What each rank shows in the plain run."""

    def observes(self, observables: Sequence[str]) -> list[str]:
        # Gradients of shards are set by no backward.
        unseen = {"injected_failures", *(["hooks"] if self._kind == "fsdp2" else [])}
        seen = {*super().observes(observables), "collectives"} - unseen
        return [o for o in observables if o in seen]

    def export(self, request: Request, finding: str) -> str:
        self._begin(request.case)
        try:
            # Which tells what DDP is to look for.
            self._ask(request, self._limit)
        except Lost as why:
            raise Unsupported("ranks of the plain run do not answer") from why
        return export_parallel(request, finding, self.modules_by_declaration, self._setup)

    def _begin(self, case: Case) -> None:
        self._setup = setup_of(self._kind, case)
        self._case, self._wrong, self._plain = case, "", ()

    def run(self, request: Request, record: Record) -> None:
        if request.case is not self._case:
            self._begin(request.case)
        try:
            answers = self._ask(request, self._limit)
        except Lost as why:
            return record.error("Hang", str(why))
        wrong = difference(answers)
        if wrong and any(answer.error for answer in answers):
            # One rank may still have collectives on the way that others do not have.
            self._ranks.stop()
        if answers[0].error:
            return record.error(*answers[0].error)
        if not request.checkpointed:
            self._plain = answers
        elif self._plain:
            wrong = wrong or strayed(self._plain, answers)
        # An error of the plain run would not be judged.
        self._wrong = self._wrong or wrong
        if self._wrong and request.checkpointed:
            return record.error("RanksDiffer", self._wrong)
        join(answers, record)

    def _ask(self, request: Request, seconds: float) -> list[Answer]:
        """Both runs of a plain one that is run again share the limit, as one run of the harness."""
        began = time.monotonic()
        answers = self._ranks.ask((request, self._setup), self._setup.ranks, seconds)
        for answer in answers:
            if answer.unsupported:
                raise Unsupported(answer.unsupported)
            if answer.error and self._setup.low and not request.checkpointed:
                raise Unsupported(f"a layer does not run in bfloat16: {answer.failed}")
        unused = _unused(answers[0], request.model)
        if self._setup.mode == "default" and not request.checkpointed and unused:
            # PyTorch wants to be told.
            self._setup = replace(self._setup, mode="find_unused_parameters")
            return self._ask(request, seconds - (time.monotonic() - began))
        return answers

    def _run_rows(self, job: tuple[Request, Setup], rank: int, group: dist.ProcessGroup) -> Answer:
        """In a rank: runs its rows."""
        request, setup = job
        answer = Answer()
        seen = Collectives(answer.shown, partial(self._ranks.says, rank))
        mine = replace(request, arrays=rows_of(request.arrays, rank, setup.ranks))
        kind = DdpModel if setup.kind == "ddp" else FsdpModel
        memory = Memory()
        try:
            model = kind(
                mine,
                wire(request.case, request.model),
                Saves(answer.shown, memory),
                self._checkpoint,
                custom=self.modules_by_declaration,
                setup=setup,
                group=group,
                seen=seen,
            )
            memory.belongs_to_model(model.all_tensors())
            run = _RunOfRows(mine, model, answer.shown)
            run.share = len(mine.arrays.inputs[0]) * setup.ranks / len(request.arrays.inputs[0])
            with seen:
                run.go()
        except Unsupported as why:
            answer.unsupported = str(why)
        except Exception as error:
            answer.error = type(error).__name__, str(error)
        answer.collectives = seen.seen
        changed = put_back()
        if changed and not answer.failed:
            answer.error = "LeftBehind", f"the run leaves settings changed: {changed}"
        return answer


def _unused(answer: Answer, model: Model) -> bool:
    """Whether it failed, or some parameter that trains never got a gradient."""
    shown = answer.shown
    reached = {entry.get("parameter", 0) for entry in shown.entries("hooks")}
    if answer.error or any(not info.frozen and index not in reached for index, info in enumerate(model.parameters)):
        return True
    # A part of a module of the subject's own may be unused.
    return any(
        quantity == "parameter_gradient" and array is not None and bool(np.isnan(array).any())
        for (quantity, *_), (array, _) in shown.arrays.items()
    )

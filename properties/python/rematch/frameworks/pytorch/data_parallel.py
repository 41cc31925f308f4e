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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch._dynamo  # noqa: F401  Imported now, once, and not by every rank.
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
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

# A rank normalizes and counts by its own rows.
OF_THE_BATCH = {"batch_norm", "moe", "delayed_scaling", "fp8", "kv_cache", "advancing_state"}
# Reductions belong to one backward that follows its forward.
OF_ONE_BACKWARD = {"forwards_first", "retain_graph", "partial_backwards", "several_losses"}
ALONE = {"injected_failure", "failure_in_segment", "spectral_norm", "stateful_layer"}
# Where a module of the subject's own draws anew is foreseen from its draws, which are not observed.
ALONE |= {"preserve_rng_off", "fresh_draws"}
# There is nothing to share.
ALONE |= {"one_row"}
LACKS = OF_THE_BATCH | OF_ONE_BACKWARD | ALONE
# DistributedDataParallel refuses a model without what trains.
LACKS_OF = {"ddp": LACKS | {"nothing_trains"}, "fsdp2": LACKS}
"""Features that cases do not have."""
LAYERS = tuple(
    layer
    for layer in MODULES
    # A forward that normalizes the rows that it reads changes parameters by its rank's.
    if "state" not in layer.declaration.partition(";")[2] and layer.name != "embedding_max_norm"
)


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

    def note_kept(self) -> None:
        """Notes what is still gathered."""

    def _place(self, parameter: int) -> nn.Module:
        """That of all layers that use it, or the root."""
        used = self.request.model.layer_parameters
        places = {self._made_of[i] for i, its in enumerate(used) if parameter in its}
        return places.pop() if len(places) == 1 else self._root

    def _announce(self, units: dict[nn.Module, Segment | None], size: Callable[[Tensor], int], **says: bool) -> None:
        """Notes what units there are, the root first, and how large the parts of their parameters are in a
        collective."""
        assert self.seen is not None and self.setup is not None
        record, case = self.seen.record, self.request.case
        says |= {"accumulates": self.setup.no_sync, "learns": self.setup.mode == "static_graph"}
        for number, (unit, segment) in enumerate(units.items()):
            begin, end = (0, len(case.layers)) if segment is None else (segment.begin, segment.end)
            around = segment is not None and self.setup.mode == "checkpoint around"
            record.unit(number, begin, end, stays=segment is None, recomputed=around, **says)
        numbers = {unit: number for number, unit in enumerate(units)}
        infos = self.request.model.parameters
        for index, (parts, info) in enumerate(zip(TorchModel.trained(self), infos, strict=True)):
            unit = self._made_of[info.layer] if info.layer in self._custom else self._place(index)
            record.shard(numbers[unit], index, sum(map(size, parts)))

    def _run_segment(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        assert self.seen is not None
        with self.seen.recomputation():
            return self._run_within(segment, *inputs, state=state)

    def _run_within(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        return super()._run_segment(segment, *inputs, state=state)

    def phase(self, name: str, state: Forward) -> AbstractContextManager[Any]:
        assert self.seen is not None
        return self.seen.phase(name, step=state.step, microbatch=state.microbatch)

    def forward(self, state: Forward) -> Values:
        rest: list[Tensor] = []

        def run(*inputs: Tensor) -> Tensor:
            first, *rest[:] = self._run_model(state, inputs)
            return first

        # DDP takes all that a module returns for part of a loss.
        with self.phase("forward", state):
            return (self._root(run, *state.inputs), *rest)


@dataclass
class DdpModel(ParallelModel):
    """A model within DistributedDataParallel."""

    def _wrap(self) -> None:
        assert self.setup is not None
        if not any(p.requires_grad for p in self._root.parameters()):
            raise Unsupported("DistributedDataParallel refuses a model without what trains")
        self._announce({self._root: None}, lambda p: p.nbytes if p.requires_grad else 0, replicated=True)
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
    """A model within fully_shard(), as is each segment of the plan, in the plain run, too. What
    several segments share belongs to the model."""

    def _place_segments(self) -> None:
        self._units: dict[Segment, nn.Module] = {}
        for number, segment in enumerate(self.request.case.plan.segments):
            unit = self._units[segment] = Unit()
            self._root.add_module(f"segment{number}", unit)
            self._made_of[segment.begin : segment.end] = [unit] * (segment.end - segment.begin)

    def _wrap(self) -> None:
        self._parameters_of = _Now(self)
        assert self.group is not None and self.seen is not None
        group, segments = self.group, {unit: segment for segment, unit in self._units.items()}
        self._announce({self._root: None, **segments}, lambda p: padded(p.shape, p.element_size(), group))
        modules = self._modules = (self._root, *self._units.values())
        for module in modules:
            module.remembers(modules)
        mesh = DeviceMesh.from_group(group, "cpu")
        for number, module in reversed(list(enumerate(modules))):
            fully_shard(module, mesh=mesh)
            module.told_apart(number, self.seen)

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
        assert self.setup is not None
        # A forward without a backward leaves the root whole, and the next one would not see what
        # the optimizer did to its shards.
        self._root.reshard()
        self._root.set_requires_gradient_sync(last or not self.setup.no_sync)
        return nullcontext()

    def evaluate(self, inputs: Sequence[Tensor]) -> Tensor:
        modules = self._modules
        for module in modules:
            module.reshard()
            module.unshard()
        output = super().evaluate(inputs)
        for module in modules:
            module.reshard()
        return output

    def _run_model(self, state: Forward, values: Values) -> Values:
        if self.request.checkpointed:
            return super()._run_model(state, values)
        case = self.request.case
        return self._run_range(0, len(case.layers), case.plan.segments, state, values)

    def _run_checkpoint(self, segment: Segment, state: Forward, values: Values) -> Values:
        assert self.setup is not None
        unit = self._units.get(segment)
        if not self.request.checkpointed:
            assert unit is not None
            return unit(self._run_range, segment.begin, segment.end, (), state, values)
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
        self._streams: list[list[dict[str, Any]]] = []
        """Random states of each rank in the plain run."""

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
        self._case, self._wrong, self._streams = case, "", []

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
            self._streams = [answer.shown.entries("streams") for answer in answers]
        elif self._streams:
            wrong = wrong or strayed(self._streams, answers)
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
        seen = Collectives(answer.shown)
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

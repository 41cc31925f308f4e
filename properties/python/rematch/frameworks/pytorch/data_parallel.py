"""PyTorch's parallelism as subjects: DistributedDataParallel and fully_shard() around segments that are
checkpointed, each rank with its share of the rows of the case's batch; parallelize_module(), where each has its share
of layers and all rows; and fully_shard() around that. A batch may also be whole on each rank.

What ranks of a shared batch show is joined, and must be what one process would show with the whole batch. Within
which bounds is for the harness's reference to say: gradients are means over ranks, whose numbers
are powers of two, so that no division rounds. The checkpointed run on as many ranks must have the
bits of the plain one: every parameter has the same place in what is reduced, by which gloo chooses
the order of summation.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch._dynamo  # noqa: F401  Imported now, once, and not by every rank.
import torch.distributed as dist
from torch import Tensor

from rematch.frameworks.pytorch.agreement import Answer, difference, join, strayed
from rematch.frameworks.pytorch.collectives import Collectives
from rematch.frameworks.pytorch.export_parallel import export_parallel
from rematch.frameworks.pytorch.memory import Memory
from rematch.frameworks.pytorch.model import Forward, wire
from rematch.frameworks.pytorch.modules import MODULES
from rematch.frameworks.pytorch.operators import INFERENCE
from rematch.frameworks.pytorch.parallel_model import DdpModel
from rematch.frameworks.pytorch.ranks import Lost, Ranks
from rematch.frameworks.pytorch.run import TorchRun
from rematch.frameworks.pytorch.setup import OPTIONS, SHARES, Setup, setup_of
from rematch.frameworks.pytorch.sharded_model import FsdpModel
from rematch.frameworks.pytorch.split_model import ShardedSplitModel, SplitModel
from rematch.frameworks.pytorch.subject import TorchSubject
from rematch.frameworks.pytorch.trial import put_back
from rematch.frameworks.pytorch.watch import Saves, Watch
from rematch.journal.operators import Operators
from rematch.subjects.case import Case, Model, Segment
from rematch.subjects.protocol import Arrays, Request, Unsupported
from rematch.subjects.records import Record

# A backward for some tensors does not reach parameters of FSDP2, which are other tensors while they are whole, and
# reductions of DDP belong to one backward that follows its forward.
OF_BACKWARDS = {"partial_backwards"}
OF_ONE_BACKWARD = OF_BACKWARDS | {"forwards_first", "retain_graph", "several_losses"}
# No law compares what a recomputation draws afresh, whichever rank draws it.
LACKS = {"fresh_draws"}
# DistributedDataParallel refuses a model without what trains.
LACKS_OF = {"ddp": LACKS | OF_ONE_BACKWARD | {"nothing_trains"}, "fsdp2": LACKS | OF_BACKWARDS}
# All that looks at gradients together refuses those of DTensors among others.
LACKS_OF["tp"] = LACKS | {"clipping", "loss_scaling"}
LACKS_OF["fsdp2_tp"] = LACKS_OF["fsdp2"] | LACKS_OF["tp"]
"""Features that cases do not have."""
MODELS = {"ddp": DdpModel, "fsdp2": FsdpModel, "fsdp2_tp": ShardedSplitModel, "tp": SplitModel}
# A forward that normalizes the rows that it reads changes parameters by its rank's.
LAYERS = tuple(layer for layer in MODULES if layer.name != "embedding_max_norm")


class _RunOfRows(TorchRun):
    """The run of a rank, whose loss counts as much as it has rows."""

    share = 1.0
    scopes: ExitStack
    """Scopes that end with the run."""

    def begin(self) -> None:
        super().begin()
        # A trial belongs to no step.
        self.scopes.enter_context(Operators(self._model.seen))

    def fail(self) -> None:
        with self._model.trial():
            super().fail()

    def _weight(self, index: int) -> Tensor:
        # The sharded parameter is another tensor.
        return self._parameters[index][0]

    def restore(self) -> str:
        self._model.goes_on()
        return super().restore()

    def backward(self, state: Forward) -> None:
        model, ran = self._model, bool(state.losses)
        model.begins_backward(state)
        with model.phase("backward", state):
            super().backward(state)
            if ran and not self.trial:
                model.note_kept()

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        return self._shared(super()._loss(output, target))

    def _auxiliary_loss(self, output: Tensor) -> Tensor:
        return self._shared(super()._auxiliary_loss(output))

    def _shared(self, loss: Tensor) -> Tensor:
        return loss if self.share == 1 else loss * self.share


def rows_of(arrays: Arrays, rank: int, ranks: int) -> Arrays:
    """The part of a case's data that a rank has."""

    def cut(given: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array_split(array, ranks)[rank] for array in given]

    def cut_one(given: np.ndarray | None) -> np.ndarray | None:
        return None if given is None else cut([given])[0]

    return replace(
        arrays,
        inputs=cut(arrays.inputs),
        targets=cut(arrays.targets),
        reevaluation=cut_one(arrays.reevaluation),
        trial_input=cut_one(arrays.trial_input),
        trial_target=cut_one(arrays.trial_target),
        further_inputs=[cut(forward) for forward in arrays.further_inputs],
        further_reevaluation_inputs=cut(arrays.further_reevaluation_inputs),
        further_trial_inputs=cut(arrays.further_trial_inputs),
    )


class DataParallelSubject(TorchSubject):
    """PyTorch on several ranks; `kind`: ddp, fsdp2, tp or fsdp2_tp. `limit`: the seconds that a run may take."""

    tries_promises = takes_policies = False

    def __init__(self, kind: str, variant: str = "both", limit: float = 30, **rest: Any) -> None:
        name = f"torch {torch.__version__.split('+')[0]} {kind}"
        rest = {"layers": LAYERS, "lacks": LACKS_OF[kind], **rest}
        self._splits = kind in ("tp", "fsdp2_tp")
        """Ranks split layers."""
        super().__init__(name, variant=variant, observe="cheap" if self._splits else "saved", **rest)
        self._without(INFERENCE)
        self.options, self.shares = OPTIONS[kind] | self.options, SHARES[kind] | self.shares
        self._kind = kind
        self._limit = limit
        self._ranks = Ranks(self._run_rows, limit)
        self._case: Case | None = None
        self._plain: Sequence[Answer] = ()
        """What each rank shows in the plain run."""

    def observes(self, observables: Sequence[str]) -> list[str]:
        # Gradients of shards are set by no backward.
        unseen = {"injected_failures", *(["hooks"] if "fsdp2" in self._kind else [])}
        seen = {*super().observes(observables), "collectives"} - unseen
        return [o for o in observables if o in seen]

    def export(self, request: Request, finding: str) -> str:
        self._begin(request.case)
        if self._kind == "ddp":
            try:
                # Which tells what it is to look for.
                self._ask(request, self._limit)
            except Lost as why:
                raise Unsupported("ranks of the plain run do not answer") from why
        return export_parallel(request, finding, self.modules_by_declaration, self._setup)

    def _begin(self, case: Case) -> None:
        self._setup = setup_of(self._kind, case)
        self._case, self._wrong, self._plain = case, "", ()
        if any(_may_draw_anew(case, segment) for segment in case.plan.cut(len(case.layers))):
            # That is foreseen from draws, which are not observed.
            raise Unsupported("a module in a segment that does not preserve the random state")
        ways = any(layer.kind in ("early_exit", "moe") for layer in case.layers)
        if ways and case.protocol.inject in ("input_changed", "weight_changed"):
            # A recomputation of other values may fail on one rank, for which the others then wait.
            raise Unsupported("a trial after which ranks may go different ways")

    def run(self, request: Request, record: Record) -> None:
        if request.case is not self._case:
            self._begin(request.case)
        try:
            answers = self._ask(request, self._limit)
        except Lost as why:
            if not request.checkpointed:
                # No checkpoint is to blame: the machine may be slow.
                raise Unsupported(f"the plain run: {'; '.join(str(why).splitlines())}") from why
            return record.error("Hang", str(why))
        wrong = difference(answers, self._setup.same, self._kind == "fsdp2")
        if wrong and any(answer.error for answer in answers):
            # One rank may still have collectives on the way that others do not have.
            self._ranks.stop()
        failed = [answer.error for answer in answers if answer.error]
        # In a plain run, that of any rank: a rank may have too few rows for a layer.
        if answers[0].error or (failed and not request.checkpointed):
            return record.error(*failed[0])
        if not request.checkpointed:
            self._plain = answers
        elif self._plain:
            wrong = wrong or strayed(self._plain, answers)
        # An error of the plain run would not be judged.
        self._wrong = self._wrong or wrong
        if self._wrong and request.checkpointed:
            return record.error("RanksDiffer", self._wrong)
        join(answers, record, self._setup.same, self._kind == "fsdp2")

    def _ask(self, request: Request, seconds: float) -> list[Answer]:
        """Both runs of a plain one that is run again share the limit, as one run of the harness."""
        began = time.monotonic()
        answers = self._ranks.ask((request, self._setup), self._setup.ranks, seconds)
        for answer in answers:
            if answer.unsupported:
                raise Unsupported(answer.unsupported)
            if answer.error and self._setup.low and not request.checkpointed:
                raise Unsupported(f"a layer does not run in bfloat16: {answer.failed}")
        unused = self._kind == "ddp" and _unused(answers[0], request.model)
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
        mine = request
        if setup.shares > 1:
            mine = replace(request, arrays=rows_of(request.arrays, rank // setup.parts, setup.shares))
        memory = Memory()
        try:
            model = MODELS[setup.kind](
                mine,
                wire(request.case, request.model),
                Watch(answer.shown) if self._splits else Saves(answer.shown, memory),
                self._checkpoint,
                custom=self.modules_by_declaration,
                setup=setup,
                group=group,
                seen=seen,
            )
            memory.belongs_to_model(model.all_tensors())
            run = _RunOfRows(mine, model, answer.shown)
            rows = len(mine.arrays.inputs[0])
            run.share = rows * setup.shares / len(request.arrays.inputs[0])
            answer.rows = rows if setup.parts > 1 else 0
            with ExitStack() as run.scopes:
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


def _may_draw_anew(case: Case, segment: Segment) -> bool:
    within = case.layers[segment.begin : segment.end]
    if not segment.choice.preserve_rng and any(layer.kind == "custom" for layer in within):
        return True
    return any(_may_draw_anew(case, inner) for inner in segment.nested)


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

"""Models whose parameters are those of a module that is run on several ranks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from rematch.frameworks.pytorch.collectives import Collectives, Unit
from rematch.frameworks.pytorch.model import Forward, TorchModel, Values
from rematch.frameworks.pytorch.setup import Setup
from rematch.subjects.case import Segment
from rematch.subjects.protocol import Unsupported


@dataclass
class ParallelModel(TorchModel):
    """A model whose parameters are those of a module that is run in parallel."""

    setup: Setup = field(kw_only=True)
    group: dist.ProcessGroup = field(kw_only=True)
    seen: Collectives = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._root: nn.Module = Unit()
        self._made_of = [self._root] * len(self.request.case.layers)
        """The module that each layer belongs to."""
        self._place_segments()
        infos = enumerate(self.request.model.parameters)
        # Parameters of the subject's own modules are part of these.
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

    def trial(self) -> AbstractContextManager[Any]:
        """Surrounds a forward and its backward that are to fail."""
        return nullcontext()

    def goes_on(self) -> None:
        """Is called after a trial, as users do that go on after an error."""

    def _place(self, parameter: int) -> nn.Module:
        """The module of all layers that use the parameter, or the root."""
        used = self.request.model.layer_parameters
        places = {self._made_of[i] for i, its in enumerate(used) if parameter in its}
        return places.pop() if len(places) == 1 else self._root

    def _announce(self, units: dict[nn.Module, range], size: Callable[[Tensor], int], **says: bool) -> None:
        """Notes what units there are and which layers run in each, the root first, and how large the parts of their
        parameters are in a collective."""
        record, setup = self.seen.record, self.setup
        says |= {"accumulates": setup.no_sync, "learns": setup.mode == "static_graph"}
        for number, (unit, layers) in enumerate(units.items()):
            self.seen.layers[number] = layers
            stays, inner = setup.stays(number), self._is_recomputed(unit)
            says |= {"stays": stays, "recomputed": inner}
            record.add("units", unit=number, begin=layers.start, end=layers.stop, **says)
        numbers = {unit: number for number, unit in enumerate(units)}
        infos = self.request.model.parameters
        for index, (parts, info) in enumerate(zip(TorchModel.trained(self), infos, strict=True)):
            unit = self._made_of[info.layer] if info.layer in self._custom else self._place(index)
            sent = {"bytes": sum(map(size, parts)), "added": self._added(index)}
            record.add("shards", unit=numbers[unit], parameter=index, **sent)

    def _added(self, parameter: int) -> int:
        """Bytes of its gradient that ranks with the same rows add up ahead of what is reduced."""
        return 0

    def _run_segment(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        with self.seen.segment(segment.begin, segment.end):
            return self._run_within(segment, *inputs, state=state)

    def _run_within(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        return super()._run_segment(segment, *inputs, state=state)

    def _layer_function(self, index: int, state: Forward) -> Callable[..., Any]:
        run, seen = super()._layer_function(index, state), self.seen

        def runs(given: Any) -> Any:
            with seen.segment(index, index + 1):
                return run(given)

        return runs

    def phase(self, name: str, state: Forward) -> AbstractContextManager[Any]:
        return self.seen.phase(name, step=state.step, microbatch=state.microbatch)

    def forward(self, state: Forward) -> Values:
        with self.phase("forward", state):
            return self._run_root(state)

    def _run_root(self, state: Forward) -> Values:
        return super().forward(state)


@dataclass
class DdpModel(ParallelModel):
    """A model within DistributedDataParallel."""

    def _wrap(self) -> None:
        if not any(p.requires_grad for p in self._root.parameters()):
            raise Unsupported("DistributedDataParallel refuses a model without what trains")
        everything = range(len(self.request.case.layers))
        low = self.setup.hook == "bf16_compress"

        def size(p: Tensor) -> int:
            return p.numel() * (2 if low else p.itemsize) if p.requires_grad else 0

        self._announce({self._root: everything}, size, replicated=True)
        # There is no other unit, whatever sends.
        self.seen.unit = 0
        options: dict[str, Any] = {} if self.setup.buckets else {"bucket_cap_mb": 1e-6}
        if self.setup.mode != "default":
            options[self.setup.mode] = True
        self._root = DistributedDataParallel(self._root, process_group=self.group, **options)
        if self.setup.hook != "none":
            self._root.register_comm_hook(self.group, getattr(default_hooks, f"{self.setup.hook}_hook"))
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
        reduces = last or self._learns or not self.setup.no_sync
        self._learns = False
        return nullcontext() if reduces else self._root.no_sync()

    def trial(self) -> AbstractContextManager[Any]:
        # A reduction that was begun and not finished ends all further forwards with an error.
        return self._root.no_sync()

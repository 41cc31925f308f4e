"""Models whose parameters are those of a module that is run on several ranks."""

from collections.abc import Callable, Iterable
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

    def _announce(self, units: Iterable[range], replicated: bool = False) -> None:
        """Notes what units there are and which layers run in each, the root first."""
        for number, layers in enumerate(units):
            self.seen.layers[number] = layers
            self.seen.record.add("units", unit=number, begin=layers.start, end=layers.stop, replicated=replicated)

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
        self._announce([everything], replicated=True)
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

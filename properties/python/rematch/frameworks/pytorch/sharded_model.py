"""Models within fully_shard()."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from rematch.frameworks.pytorch.collectives import ROWS, Unit
from rematch.frameworks.pytorch.model import Forward, Values
from rematch.frameworks.pytorch.parallel_model import ParallelModel
from rematch.frameworks.pytorch.setup import layers_with_own
from rematch.subjects.case import Segment


def _in_unit(unit: nn.Module | None, run: Callable[..., Values], values: Values) -> Values:
    """Runs `run` in the unit. A tensor that it is given twice is two for autograd, but one where a reentrant segment
    runs its forward without gradients, so that a backward adds up gradients in another order: it is given once."""
    if unit is None:
        return run(*values)
    number: dict[Tensor, int] = {}
    at = [number.setdefault(value, len(number)) for value in values]
    return unit(lambda *tensors: run(*[tensors[i] for i in at]), *number)


class _Now(list[Any]):
    """The parameters of layers as they are when they are asked for."""

    def __init__(self, model: "FsdpModel") -> None:
        super().__init__()
        self._model = model

    def __getitem__(self, layer: Any) -> Any:
        return self._model.now(layer)


@dataclass
class FsdpModel(ParallelModel):
    """A model within fully_shard(), as are segments of the plan, layers, or both, in the plain run, too. What
    several of them share belongs to what they are in."""

    def _place_segments(self) -> None:
        self._units: dict[Segment | int, nn.Module] = {}
        self._layers = {self._root: range(len(self._made_of))}
        """What runs in each unit."""
        if self.setup.units != "layers":
            for number, segment in enumerate(self.request.case.plan.segments):
                self._add(f"segment{number}", segment, range(segment.begin, segment.end))
        if self.setup.units != "segments":
            for layer in layers_with_own(self.request.model):
                self._add(f"layer{layer}", layer, range(layer, layer + 1))

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

    def _wrap(self) -> None:
        self._shard(DeviceMesh.from_group(self.group, "cpu", mesh_dim_names=(ROWS,)))

    def _shard(self, mesh: DeviceMesh) -> None:
        self._parameters_of = _Now(self)
        setup = self.setup

        self._announce(self._layers.values())
        modules = self._modules = tuple(self._layers)
        for module in modules:
            module.remembers(modules)
        options: dict[str, Any] = {"mesh": mesh}
        if setup.low:
            low = torch.bfloat16
            options["mp_policy"] = MixedPrecisionPolicy(low, reduce_dtype=low, output_dtype=torch.float32)
        for number, module in reversed(list(enumerate(modules))):
            if setup.reshard != "default":
                again = 2 if setup.reshard == "to two ranks" else not setup.stays(number)
                options["reshard_after_forward"] = again
            fully_shard(module, **options)
            module.told_apart(number, self.seen)
        for unit, following in pairwise(setup.order(self._layers)):
            if setup.prefetch == "forward":
                unit.set_modules_to_forward_prefetch([following])
            elif setup.prefetch == "backward":
                unit.set_modules_to_backward_prefetch([following])
        self._forwards = 0

    def goes_on(self) -> None:
        self._root.reset_iter_state()

    def _home(self, parameter: int) -> tuple[nn.Module, str]:
        """The module that has it, and by which name."""
        return self._place(parameter), f"p{parameter}"

    def note_kept(self) -> None:
        for number, module in enumerate(self._modules):
            if size := module.gathered():
                self.seen.note("kept", number, size)

    def now(self, layer: int) -> list[Tensor]:
        """The parameters of a layer, sharded unless its module runs."""
        used = self.request.model.layer_parameters[layer]
        tensors = [getattr(*self._home(p)) for p in used]
        return [t.detach() for t in tensors] if layer in self.request.detached_layers else tensors

    def trained(self) -> list[list[Tensor]]:
        groups = super().trained()
        for index in self._bare:
            groups[index][:] = [getattr(*self._home(index))]
        return groups

    def shown(self, t: Tensor) -> Tensor:
        # Ranks are asked for their shards: what they show is joined without collectives.
        return t.to_local() if isinstance(t, DTensor) else t

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
        return self._root(lambda *values: self._run_model(state, values), *state.inputs)

    def _run_model(self, state: Forward, values: Values) -> Values:
        if self.request.checkpointed:
            return super()._run_model(state, values)
        case = self.request.case
        return self._run_range(0, len(case.layers), case.plan.segments, state, values)

    # fully_shard() looks for tensors within what a unit is given, dataclasses too: not the state, which has the
    # model's inputs.

    def _run_layer(self, index: int, state: Forward, values: Values) -> Values:
        run_whole, unit = super()._run_layer, self._units.get(index)

        def run(*values: Tensor) -> Values:
            # What is gathered is the model's, too.
            own = self._custom.get(index)
            used = self.now(index) if own is None else own.module.parameters()
            self.watch.replaced(t for t in used if not isinstance(t, DTensor))
            return run_whole(index, state, values)

        return _in_unit(unit, run, values)

    def _run_checkpoint(self, segment: Segment, state: Forward, values: Values) -> Values:
        unit, run = self._units.get(segment), super()._run_checkpoint
        if not self.request.checkpointed:
            return _in_unit(unit, lambda *v: self._run_range(segment.begin, segment.end, (), state, v), values)
        if unit is None or self.setup.mode == "checkpoint around":
            return run(segment, state, values)
        return _in_unit(unit, lambda *v: run(segment, state, v), values)

    def _run_within(self, segment: Segment, *inputs: Tensor, state: Forward) -> Any:
        unit, run = self._units.get(segment), super()._run_within
        if unit is None or self.setup.mode != "checkpoint around":
            return run(segment, *inputs, state=state)
        return _in_unit(unit, lambda *given: run(segment, *given, state=state), inputs)

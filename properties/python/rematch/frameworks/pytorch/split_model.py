"""Models of which layers are split among ranks by parallelize_module(), sharded by FSDP2 or not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, parallel
from torch.distributed.tensor.parallel import parallelize_module
from torch.func import functional_call

from rematch.frameworks.pytorch.collectives import ROWS, of_unit
from rematch.frameworks.pytorch.model import Function
from rematch.frameworks.pytorch.parallel_model import ParallelModel
from rematch.frameworks.pytorch.ranks import keep_groups
from rematch.frameworks.pytorch.sharded_model import FsdpModel
from rematch.frameworks.pytorch.split_units import NORMS, module_of, units_of

_STYLES = {**vars(parallel), "Replicate": Replicate, "Shard": Shard}


@dataclass
class SplitModel(ParallelModel):
    """A model whose values are whole on every rank, except within units."""

    def _wrap(self) -> None:
        self._split_layers(DeviceMesh.from_group(self.group, "cpu"), 1)
        # Unit 0 is all that is whole, and sends nothing.
        self.seen.record.add("units", end=len(self.request.case.layers), replicated=True)

    def _split_layers(self, mesh: DeviceMesh, first: int) -> None:
        """Splits layers, and notes those as units, from that number on."""
        self._mesh = mesh
        self._split: dict[int, nn.Module] = {}
        self._unit_of: dict[int, int] = {}
        layers = self.request.case.layers
        for number, unit in enumerate(units_of(self.request, self.custom, self.setup), first):
            self._unit_of[unit.layer] = number
            module = self._split[unit.layer] = self._module(unit.layer)
            trained = {name: p.requires_grad for name, p in module.named_parameters()}
            for style in unit.styles:
                # Every rank has all of it, and takes its part.
                parallelize_module(module, mesh, eval(style, _STYLES), src_data_rank=None)
            for name, p in module.named_parameters():
                # SequenceParallel has parameters train.
                p.requires_grad_(trained[name])
            self._share(unit.layer)
            self.seen.layers[number] = range(unit.layer, unit.layer + 1)
            self.seen.record.add("units", unit=number, begin=unit.layer, end=unit.layer + 1, split=True)
        self._norms = [m for index, m in self._split.items() if layers[index].kind in NORMS]

    def _module(self, index: int) -> nn.Module:
        """A layer with the case's own parameters."""
        module: nn.Module = eval(module_of(self.request, index), {"nn": nn})
        used = self.request.model.layer_parameters[index]
        for name, parameter in zip(("weight", "bias"), used, strict=False):
            module.register_parameter(name, self.parameters[parameter])
        return module

    def _share(self, index: int) -> None:
        """Takes the parts of the layer's parameters for those of all layers that use them."""
        module = self._split[index]
        for name, p in zip(("weight", "bias"), self.request.model.layer_parameters[index], strict=False):
            if isinstance(self.parameters[p], DTensor):
                module.register_parameter(name, self.parameters[p])
            else:
                self.parameters[p] = getattr(module, name)

    def all_tensors(self) -> Iterator[Tensor]:
        for t in super().all_tensors():
            yield t.to_local() if isinstance(t, DTensor) else t

    def ones(self, parameter: Tensor) -> Tensor:
        if not any(parameter is p for module in self._norms for p in module.parameters()):
            return super().ones(parameter)
        # As a backward leaves it: each rank has the sum over its rows, and gradients that are added to one that is
        # whole are added up at once.
        part = torch.full_like(parameter.to_local(), 1 / self._mesh.size())
        return DTensor.from_local(part, self._mesh, [Partial()], run_check=False)

    def shown(self, t: Tensor) -> Tensor:
        return t.full_tensor() if isinstance(t, DTensor) else t

    def note_kept(self) -> None:
        self.seen.unit = -1

    def _compute(self, index: int, run: Function, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        module = self._split.get(index)
        if module is None:
            return super()._compute(index, run, operands)
        with self._runs(index):
            if index in self.request.detached_layers:
                constants = {name: p.detach() for name, p in module.named_parameters()}
                output: Any = functional_call(module, constants, (operands[0],))
            else:
                output = module(operands[0])
        if output.requires_grad:
            # Whatever its backward sends is of this unit.
            seen, unit = self.seen, self._unit_of[index]
            output.register_hook(lambda _: setattr(seen, "unit", unit))
        return (output,)

    @contextmanager
    def _runs(self, index: int) -> Iterator[None]:
        ended = "stopped"
        try:
            with of_unit(self.seen, self._unit_of[index]):
                yield
            ended = "ran"
        finally:
            self.seen.note(ended, self._unit_of[index])


_LAYERS = "layers"


@cache
def _square() -> DeviceMesh:
    """Made once: it has groups of its own. Neighbours split layers."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=(ROWS, _LAYERS))
    keep_groups()
    return mesh


@dataclass
class ShardedSplitModel(SplitModel, FsdpModel):
    """Two ranks split a layer, and two share the rows of a batch, and the parameters of each part."""

    def _wrap(self) -> None:
        self._homes: dict[int, tuple[nn.Module, str]] = {}
        self._split_layers(_square()[_LAYERS], len(self._layers))
        for layer, module in self._split.items():
            self._made_of[layer].add_module(f"split{layer}", module)
            for name, p in zip(("weight", "bias"), self.request.model.layer_parameters[layer], strict=False):
                delattr(*self._home(p))
                self._homes[p] = module, name
        self._shard(_square()[ROWS])

    def _home(self, parameter: int) -> tuple[nn.Module, str]:
        return self._homes.get(parameter) or super()._home(parameter)

    def ones(self, parameter: Tensor) -> Tensor:
        # Gradients are those of shards, which are added up.
        return FsdpModel.ones(self, parameter)

    def note_kept(self) -> None:
        FsdpModel.note_kept(self)
        SplitModel.note_kept(self)

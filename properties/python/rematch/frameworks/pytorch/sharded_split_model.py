"""Models within fully_shard() of which layers are split: a mesh of two dimensions."""

from dataclasses import dataclass
from functools import cache

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rematch.frameworks.pytorch.collectives import ROWS
from rematch.frameworks.pytorch.model import Forward, Values
from rematch.frameworks.pytorch.ranks import keep_groups
from rematch.frameworks.pytorch.sharded_model import FsdpModel
from rematch.frameworks.pytorch.split_model import SplitModel

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

    def _added(self, parameter: int) -> int:
        module, _ = self._home(parameter)
        return self.parameters[parameter].nbytes if module in self._norms else 0

    def note_kept(self) -> None:
        FsdpModel.note_kept(self)
        SplitModel.note_kept(self)

    def _run_root(self, state: Forward) -> Values:
        return FsdpModel._run_root(self, state)

"""Scripts of models whose layers are split among ranks, as split_model.py runs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.ranks_script import RanksScript
from rematch.frameworks.pytorch.source import TorchSource
from rematch.frameworks.pytorch.split_units import module_of, units_of


class SplitScript(RanksScript):
    """Each rank has its part of some layers, and all rows of a batch."""

    mesh_of_layers = "mesh"

    def __init__(self, *given: Any, **options: Any) -> None:
        text, request, *_ = given
        units = units_of(request, text.modules_by_declaration, options["setup"])
        self._styles = {unit.layer: unit.styles for unit in units}
        super().__init__(*given, **options)

    def _mesh_of_all(self) -> str:
        return f'init_device_mesh("cpu", ({self._setup.ranks},))'

    def _modules(self) -> dict[int, str]:
        """What the layers that are split are called."""
        return {layer: f"{self._request.case.layers[layer].kind}{layer}" for layer in self._styles}

    def _source(self) -> TorchSource:
        source = super()._source()
        source.split = self._modules()
        for layer, module in reversed(source.split.items()):
            for role, parameter in self._of(layer).items():
                source._names[parameter] = f"{module}.{role}"
        return source

    def _of(self, layer: int) -> dict[str, int]:
        """The parameters of a layer, by the names that its module has for them."""
        return dict(zip(("weight", "bias"), self._request.model.layer_parameters[layer], strict=False))

    def _data(self) -> list[str]:
        made = [f"{name} = {module_of(self._request, layer)}" for layer, name in self._modules().items()]
        return [*made, *super()._data()]

    def _parameter_line(self, index: int, array: np.ndarray, grad: bool) -> str:
        name = self.parameters[index]
        if name.partition(".")[0] not in self._modules().values():
            return super()._parameter_line(index, array, grad)
        return f"{name} = {call('nn.Parameter', self._tensor(array), '' if grad else 'requires_grad=False')}"

    def _made_modules(self) -> list[str]:
        lines, names = super()._made_modules(), self.parameters
        lines += [f"mesh = {self._mesh_of_all()}"] if self._styles or self._setup.kind != "tp" else []
        for layer, module in self._modules().items():
            # Every rank has all of it, and takes its part.
            split = (
                f"parallelize_module({module}, {self.mesh_of_layers}, {style}, src_data_rank=None)"
                for style in self._styles[layer]
            )
            lines += split
            if self._case.layers[layer].frozen and "SequenceParallel" in str(self._styles[layer]):
                lines.append(f"{module}.requires_grad_(False)  # SequenceParallel has parameters train")
            own = {f"{module}.{role}": names[index] for role, index in self._of(layer).items()}
            lines += [f"{mine} = {name}" for mine, name in own.items() if mine != name]
        return lines

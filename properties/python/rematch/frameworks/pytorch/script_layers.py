"""The layers of a case as a user of PyTorch writes them: the text of their tensors and calls."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rematch.case import Case
from rematch.frameworks.pytorch.layers import call, expression, window
from rematch.frameworks.pytorch.script_custom import CustomText
from rematch.protocol import Request

RECURRENT = ("gru", "lstm")
MODULES = {
    "embedding": "embed",
    "linear": "linear",
    "conv2d": "conv",
    "batch_norm": "bn",
    "layer_norm": "norm",
    "group_norm": "norm",
    "rms_norm": "norm",
    "gru": "rnn",
    "lstm": "rnn",
}
"""The kinds that are modules in torch.nn, and what variables of them are called."""


@dataclass(frozen=True)
class Style:
    """How a script is written. The usual one is short; the last one is the case to the bit."""

    exact: bool = False
    """Numbers of the case, unrounded, its seed, and its loss."""
    literal: bool = True
    """Numbers of the case, not drawn ones."""
    seed: int = 0
    summed: bool = False
    """The loss is the sum of the outputs."""
    input_grad: bool = False
    """The input requires a gradient, though in the case it does not."""
    compare: str = "equal"
    """"equal", "none" (some are None), "bits" (0 is not -0) or "nan" (NaN is equal to itself)."""
    nan: bool = False
    """Memory that nobody wrote to is NaN."""
    whole_ops: bool = False
    """A policy lists operators; otherwise it keeps whatever the named layers compute."""
    compiled: str = ""
    """The decorator that compiles the forward."""


def _number(value: np.generic, exact: bool) -> str:
    if value.dtype.kind in "iu" or not np.isfinite(value):
        return repr(value.item()) if value.dtype.kind in "iu" else f'float("{value}")'
    if not exact:
        value = value.dtype.type(round(float(value), 2))
    return np.format_float_positional(value, unique=True, trim="0")


def _nested(array: np.ndarray, exact: bool) -> str:
    if array.ndim == 0:
        return _number(array[()], exact)
    return "[" + ", ".join(_nested(part, exact) for part in array) + "]"


class Tensors:
    """The text that makes the tensors of a case."""

    def __init__(self, case: Case, style: Style) -> None:
        self._case = case
        self._style = style
        self.drawn = False
        """Whether any of them are random."""

    def make(self, array: np.ndarray, role: str = "", grad: bool = False) -> str:
        """`role` is that of a parameter, "classes" of a target, or nothing."""
        options = ["dtype=torch.float64" if self._case.dtype == "float64" else ""]
        options.append("requires_grad=True" if grad else "")
        shape = ", ".join(map(str, array.shape))
        for value, name in ((0, "zeros"), (1, "ones")):
            if array.dtype.kind == "f" and (array == value).all():
                return call(f"torch.{name}", shape, *options)
        if self._style.literal or role.startswith("running") or role in ("u", "v", "cache"):
            integral = array.dtype.kind != "f"
            # Tokens are of rank 2, classes of rank 1.
            dtype = "torch.int32" if array.ndim == 2 else "torch.int64"
            return call(
                "torch.tensor", _nested(array, self._style.exact), *([f"dtype={dtype}"] if integral else options)
            )
        self.drawn = True
        if array.dtype.kind != "f":
            tokens = array.ndim == 2
            top = self._case.layers[0].vocabulary if tokens else int(array.max()) + 1
            dtype = "dtype=torch.int32" if tokens else ""
            return call("torch.randint", str(top), f"({shape},)", dtype)
        return call("torch.randn", shape, *options)


class Layers:
    """Names for parameters, the lines that make them, and the calls of layers."""

    def __init__(self, request: Request, style: Style, customs: Mapping[int, CustomText]) -> None:
        self.request, self.style, self.customs = request, style, customs
        self.case, self.model = request.case, request.model
        self.train = self.case.protocol.train
        self.tensors = Tensors(self.case, style)
        kept = {keep.op for choice in self.case.choices() for keep in choice.keep}
        self._native_dropout = "dropout" in kept
        self._modules: dict[int, str] = {}
        self._detached = {
            p for layer in request.detached_layers if layer not in customs for p in self.model.layer_parameters[layer]
        }
        if not style.literal:
            self._name_modules()
        self.parameters = [self._parameter(i) for i in range(len(self.model.parameters))]
        self._buffers = [self._buffer(i) for i in range(len(self.model.buffers))]

    def _name_modules(self) -> None:
        owners = [
            i
            for i, layer in enumerate(self.case.layers)
            if layer.kind in MODULES and layer.tied_to < 0 and not self._detached & set(self.model.layer_parameters[i])
        ]
        names = [MODULES[self.case.layers[i].kind] for i in owners]
        for i, name in zip(owners, names, strict=True):
            self._modules[i] = name if names.count(name) == 1 else f"{name}{i}"

    def _parameter(self, index: int) -> str:
        info = self.model.parameters[index]
        if info.layer in self.customs:
            return self.customs[info.layer].parameters[0]
        if info.layer in self._modules:
            # A module of recurrent cells numbers its layers.
            level = "_l0" if info.role.endswith(("_ih", "_hh")) else ""
            return f"{self._modules[info.layer]}.{info.role}{level}"
        alone = len({p.layer for p in self.model.parameters} - set(self.customs)) == 1
        return info.role if alone else f"{info.role}{info.layer}"

    def _buffer(self, index: int) -> str:
        info = self.model.buffers[index]
        if info.layer in self._modules:
            return f"{self._modules[info.layer]}.{info.role}"
        alone = len({b.layer for b in self.model.buffers} - set(self.customs)) == 1
        return info.role if alone else f"{info.role}{info.layer}"

    def trained(self) -> list[str]:
        names = []
        for name, info in zip(self.parameters, self.model.parameters, strict=True):
            custom = self.customs.get(info.layer)
            if not info.frozen:
                names += [name] if custom is None else custom.parameters
        return names

    def listed(self) -> str:
        """The trained parameters, as elements of a list."""
        names = []
        for name, info in zip(self.parameters, self.model.parameters, strict=True):
            custom = self.customs.get(info.layer)
            if not info.frozen:
                many = custom is not None and len(custom.parameters) > 1
                names.append(f"*{custom.name}.parameters()" if many else name)
        return ", ".join(names)

    @property
    def buffers(self) -> list[str]:
        """All state of the layers: expressions of tensors."""
        names = []
        for name, info in zip(self._buffers, self.model.buffers, strict=True):
            custom = self.customs.get(info.layer)
            names += [name] if custom is None else custom.state
        return names

    @property
    def known(self) -> list[str]:
        """The tensors that belong to the model, as elements of a list."""
        own = zip((*self.parameters, *self._buffers), (*self.model.parameters, *self.model.buffers), strict=True)
        names = [name for name, info in own if info.layer not in self.customs]
        for custom in self.customs.values():
            names += [f"*{custom.name}.parameters()"] if custom.parameters else []
            names += [f"*{custom.name}.buffers()"] if any(custom.module.buffers()) else []
        return names

    def definitions(self) -> list[str]:
        """The lines that make parameters and buffers."""
        lines = [self._module(i, name) for i, name in self._modules.items()]
        arrays = self.request.arrays
        for index, info in enumerate(self.model.parameters):
            if info.layer not in self._modules and info.layer not in self.customs:
                lines.append(f"{self.parameters[index]} = {self._made(index)}")
        for index, info in enumerate(self.model.buffers):
            if info.layer not in self._modules and info.layer not in self.customs:
                made = self.tensors.make(arrays.buffers[index], info.role)
                lines.append(f"{self._buffers[index]} = {made}")
        for index in sorted(self._detached):
            name = self.parameters[index]
            if not lines[-1].startswith("#") and index == min(self._detached):
                lines.append("# The reentrant variant takes these for constants.")
            lines.append(f"{name}_used = {name} if checkpointed else {name}.detach()")
        for index, custom in self.customs.items():
            # The case's own weights are drawn for each layer; others, one after the other.
            seed = (self.case.seed + index) % 2**63 if self.style.exact else None
            self.tensors.drawn |= seed is None and custom.seeded
            lines += custom.definition(seed)
        return lines

    def _made(self, index: int) -> str:
        """The expression that makes a parameter."""
        info, array = self.model.parameters[index], self.request.arrays.parameters[index]
        return self.tensors.make(array, info.role, not info.frozen)

    def _module(self, index: int, name: str) -> str:
        layer = self.case.layers[index]
        used = self.model.layer_parameters[index]
        shape = self.request.arrays.parameters[used[0]].shape
        double = "dtype=torch.float64" if self.case.dtype == "float64" else ""
        frozen = ".requires_grad_(False)" if self.model.parameters[used[0]].frozen else ""
        self.tensors.drawn |= layer.kind in ("embedding", "linear", "conv2d", *RECURRENT)
        bias = "" if layer.bias else "bias=False"
        if layer.kind == "embedding":
            made = call("nn.Embedding", str(shape[0]), str(shape[1]), double)
        elif layer.kind == "linear":
            made = call("nn.Linear", str(shape[1]), str(shape[0]), bias, double)
        elif layer.kind in RECURRENT:
            sizes = map(str, (shape[1], layer.features))
            made = call(f"nn.{layer.kind.upper()}", *sizes, bias, "batch_first=True", double)
            frozen += "" if layer.trains(self.train) else ".eval()"
        elif layer.kind == "conv2d":
            sizes = map(str, (shape[1], shape[0], layer.kernel))
            made = call("nn.Conv2d", *sizes, *window(layer), bias, double)
        elif layer.kind == "batch_norm":
            made = call(f"nn.BatchNorm{'1d' if self.case.rank_of(index) == 2 else '2d'}", str(shape[0]), double)
            frozen += "" if layer.trains(self.train) else ".eval()"
        elif layer.kind == "group_norm":
            made = call("nn.GroupNorm", str(layer.groups), str(shape[0]), double)
        elif layer.kind == "rms_norm":
            made = call("nn.RMSNorm", str(shape[0]), "eps=1e-5", double)
        else:
            made = call("nn.LayerNorm", str(shape[0]), double)
        return f"{name} = {made}{frozen}"

    def expression(self, index: int, x: list[str], train: bool | None = None) -> str:
        """The expression of layer `index` on its operands. A name by itself: nothing happens."""
        layer = self.case.layers[index]
        train = self.train if train is None else train
        if index in self.customs:
            return self.customs[index].expression(x[0])
        owner = index if layer.tied_to < 0 else layer.tied_to
        used = [
            f"{self.parameters[p]}_used"
            if p in self._detached and index in self.request.detached_layers
            else self.parameters[p]
            for p in self.model.layer_parameters[index]
        ]
        autocast = self.case.protocol.autocast != "off"
        wide = f"{x[0]}.float()" if autocast else x[0]
        usual = layer.trains(train) == layer.trains(self.train)
        if owner in self._modules and self.case.layers[owner].kind == layer.kind:
            if layer.kind in RECURRENT:
                return f"{self._modules[owner]}({wide})[0]"
            if usual:
                return f"{self._modules[owner]}({x[0]})"
        rank, width = self.case.rank_of(index), ""
        if layer.kind in ("layer_norm", "rms_norm"):
            first = self.model.layer_parameters[index][0]
            width = f"({self.request.arrays.parameters[first].shape[0]},)"
        words = {
            **{name: x[0] for name in ("x", "alias", "dense")},
            **{"y": x[-1], "both": ", ".join(x), "width": width, "contiguous": ""},
            **{"wide": wide, "dense_wide": wide, "axis": str(self.case.features_axis(index))},
            **{"weights": ", ".join(used), "buffers": ", ".join(self._state_of(index))},
            "flat": x[0] if rank == 2 else f"{x[0]}.flatten(1)",
            "generator": f"generators[{layer.stream - 1}]",
        }
        return expression(layer, train, words, self._native_dropout)

    def _state_of(self, index: int) -> list[str]:
        """The names of a layer's buffers."""
        named = zip(self._buffers, self.model.buffers, strict=True)
        return [name for name, info in named if info.layer == index]


def comment(text: str) -> list[str]:
    """Lines of a comment."""
    return [f"# {line}" for line in textwrap.wrap(text, 96, break_long_words=False)]

"""Cases as the harness sends them, with their defaults filled in.

`ci/maintain/reference` prints what each field means.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

ValueRef = tuple[int, int]
"""One value of the model: a layer, -1 for the model inputs, and the number of its output."""

T = TypeVar("T")

PROMISE = "promise"
"""The option that names the promise which a case tries."""


FIELDS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("fields.json").read_text())
"""The fields of a case's structs and of a record's lists with their defaults, None where they must be given:
`ci/maintain/reference --write` takes them from the harness."""


def _struct(name: str, **parts: Any) -> Any:
    """The base of a class that has the fields of a struct of a case, and `parts` with their defaults."""
    usual = {own: (own, Any) if value is None else (own, Any, value) for own, value in FIELDS[name].items()}
    usual |= {part: (part, Any, value) for part, value in parts.items()}
    return make_dataclass(name, sorted(usual.values(), key=len), frozen=True)


class Layer(_struct("layer", operands=())):
    """One layer. Its first operand is output 0 of the layer before it; `operands` are the others, `from` in JSON."""

    def trains(self, train: bool) -> bool:
        """Whether it is in train mode, in a model that is or is not."""
        return train and not self.eval


class Keep(_struct("keep")):
    """Results of an op that a selective policy keeps: the index-th of a segment, -1 for all."""


class Choice(_struct("checkpoint", keep=())):
    """The options of one checkpoint."""

    @property
    def reentrant(self) -> bool:
        return self.variant == "reentrant"


class Segment(_struct("segment", choice=Choice(), nested=())):
    """Layers begin to end - 1 run in one checkpoint, those of `nested` in further ones within."""


class Sequential(_struct("sequential", choice=Choice())):
    """checkpoint_sequential() cuts the model into that many segments."""


class Plan(_struct("plan", sequential=None, segments=())):
    """Either `sequential` or `segments`; layers outside of segments run plain."""

    def cut(self, layers: int) -> tuple[Segment, ...]:
        """The segments of a model of so many layers."""
        if self.sequential is None:
            return self.segments
        whole = self.sequential
        size = layers // whole.segments
        begins = list(range(0, size * whole.segments, size))
        ends = [*begins[1:], layers]
        count = whole.segments - whole.last_stored
        return tuple(Segment(b, e, whole.choice) for b, e in list(zip(begins, ends, strict=True))[:count])


class Protocol(_struct("protocol")):
    """Training and evaluation of the model."""


class Case(_struct("case", plan=Plan(), protocol=Protocol(), options=field(default_factory=dict, hash=False))):
    """Everything that decides a run. `options` holds the subject's options that differ from their first value."""

    @property
    def takes_tokens(self) -> bool:
        """Whether the input is tokens, of which the first layer makes numbers."""
        return self.layers[0].kind == "embedding"

    def inputs_require_grad(self) -> list[bool]:
        """Tells of each model input whether it requires grad."""
        some = self.protocol.further_inputs_with_grad
        return [self.protocol.input_requires_grad, *(k < some for k in range(self.further_inputs))]

    def rank_of(self, index: int) -> int:
        """How many dimensions the first operand of a layer has; behind the last, the output."""
        flat = any(layer.kind == "flatten" for layer in self.layers[:index])
        return 2 if flat else len(self.input) + (index > 0 and self.takes_tokens)

    def features_axis(self, index: int) -> int:
        """The axis of channels in images, the last axis in rows and sequences."""
        return 2 if self.rank_of(index) == 3 else 1

    def choices(self) -> Iterator[Choice]:
        """The options of every checkpoint, nested ones included."""
        if self.plan.sequential is not None:
            yield self.plan.sequential.choice
        pending = list(self.plan.segments)
        while pending:
            segment = pending.pop()
            yield segment.choice
            pending.extend(segment.nested)


@dataclass(frozen=True)
class Parameter:
    """A parameter or a buffer of the model."""

    layer: int
    role: str
    frozen: bool = False


@dataclass(frozen=True)
class Model:
    """Facts that the harness derives from a case; see `model` in PROTOCOL.md."""

    live: tuple[tuple[ValueRef, ...], ...]
    parameters: tuple[Parameter, ...]
    layer_parameters: tuple[tuple[int, ...], ...]
    buffers: tuple[Parameter, ...] = ()
    custom_operands: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Custom layers, and the shapes that they take."""


def shape_of(case: Case) -> Case:
    """The same for all cases of one shape: in the place of their seeds, data and training steps,
    which are not compiled, it has those of none. Nor is the promise that it tries."""
    steps: dict[str, Any] = {"steps": 0, "microbatches": 0, "forwards_first": False}
    steps |= {"prior_gradients": False, "zero_grad": False}
    steps |= {"optimizer": "", "learning_rate": 0, "momentum": 0, "clip": 0, "loss_scale": 0}
    options = {name: value for name, value in case.options.items() if name != PROMISE}
    return replace(case, seed=0, data="", protocol=replace(case.protocol, **steps), options=options)


@cache
def _names_of(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


def _make(kind: type[T], json: dict[str, Any], **changed: Any) -> T:
    known = _names_of(kind)
    given = {}
    for name, value in json.items():
        if name in known:
            given[name] = value
        elif name not in _RENAMED:
            raise ValueError(
                f"{kind.__name__.lower()}: unknown field {name!r}: the harness is newer than "
                "this package; install the package that comes with it"
            )
    return kind(**given | changed)


# Read by hand where they occur.
_RENAMED = ("from", "format", "shape", "uses")


def _layer(json: dict[str, Any]) -> Layer:
    given = json.get("from", [])
    refs = [given] if given and not isinstance(given[0], list) else given
    return _make(Layer, json, operands=tuple((layer, output) for layer, output in refs))


def _with_choice(kind: type[T], json: dict[str, Any], **changed: Any) -> T:
    """The options of a checkpoint stand among the fields of what is checkpointed."""
    own = {name: value for name, value in json.items() if name in _names_of(Choice)}
    rest = {name: value for name, value in json.items() if name not in own}
    choice = _make(Choice, own, keep=tuple(_make(Keep, k) for k in own.get("keep", [])))
    return _make(kind, rest, choice=choice, **changed)


def _segment(json: dict[str, Any]) -> Segment:
    return _with_choice(Segment, json, nested=tuple(_segment(s) for s in json.get("nested", [])))


def _plan(json: dict[str, Any]) -> Plan:
    sequential = json.get("sequential")
    if sequential is not None:
        sequential = _with_choice(Sequential, sequential)
    return _make(Plan, json, sequential=sequential, segments=tuple(_segment(s) for s in json.get("segments", [])))


def case_from_json(json: dict[str, Any]) -> Case:
    """Raises ValueError for a field that this package does not know, KeyError for a missing one."""
    return _make(
        Case,
        json,
        # Seeds above 2^53 come as text.
        seed=int(json.get("seed", 0)),
        input=tuple(json["input"]),
        layers=tuple(_layer(layer) for layer in json["layers"]),
        plan=_plan(json.get("plan", {})),
        protocol=_make(Protocol, json.get("protocol", {})),
    )


def model_from_json(json: dict[str, Any]) -> Model:
    """Raises KeyError for a missing field."""
    return Model(
        live=tuple(tuple((v[0], v[1]) for v in boundary) for boundary in json["live"]),
        parameters=tuple(_make(Parameter, p) for p in json.get("parameters", [])),
        layer_parameters=tuple(tuple(p) for p in json["layer_parameters"]),
        buffers=tuple(_make(Parameter, b) for b in json.get("buffers", [])),
        custom_operands=tuple((c["layer"], tuple(c["shape"])) for c in json.get("custom_operands", [])),
    )

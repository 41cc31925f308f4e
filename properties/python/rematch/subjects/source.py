"""The model of a case as source code: what a subject runs is what an exported script shows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rematch.subjects.adapter_layers import OUTPUTS, Module
from rematch.subjects.case import Case, Layer, Model, Segment, ValueRef
from rematch.subjects.description import Description
from rematch.subjects.protocol import Unsupported

# Scripts have none.
ANNOTATION = re.compile(
    r"(?<=\w): (Any|bool|int|str|list\[Any\]|Callable\[\.\.\., Any\])(?=[,)]| =)"
    r"| -> [\w.\[\], ]+(?=:\n)"
)


def name_of(value: ValueRef) -> str:
    """How source calls a value: an input of the model, or an output of a layer."""
    layer, output = value
    if layer < 0:
        return f"x{output}" if output else "x"
    return f"v{layer}_{output}" if output else f"v{layer}"


def parameter_names(case: Case, model: Model) -> list[str]:
    """How source calls the parameters. All those of a module are one."""
    return [f"w{p.layer}" if case.layers[p.layer].kind == "custom" else f"{p.role}{p.layer}" for p in model.parameters]


def trained_arguments(case: Case, model: Model) -> list[int]:
    """The numbers of what the loss is differentiated by: 0 is the input, 1 the first parameter."""
    trained = [0] if case.protocol.input_requires_grad else []
    return trained + [i + 1 for i, p in enumerate(model.parameters) if not p.frozen]


def draws(layer: Layer, train: bool) -> bool:
    """Whether the layer, if it is none of the library's, draws random numbers."""
    if not layer.trains(train):
        return False
    return layer.kind == "rrelu" or (layer.kind in ("dropout", "gaussian_noise") and layer.p > 0)


@dataclass
class Source:
    """Writes the functions of one model.

    `observed`: with calls of `enter(layer)` before each layer, and of `drew(layer, operand,
    output)` behind those that draw.
    """

    framework: Description
    case: Case
    model: Model
    checkpointed: bool = False
    train: bool = True
    observed: bool = True
    detached: frozenset[int] = frozenset()
    name: str = "model"

    def __post_init__(self) -> None:
        self._names = parameter_names(self.case, self.model)
        if self.framework.modules_are_arguments:
            self._names = [re.sub("^w(?=[0-9])", "m", name) for name in self._names]
        self._functions: list[list[str]] = []
        self._segments: set[str] = set()
        self._operands = dict(self.model.custom_operands)
        self._state = self.framework.state if self._operands else ""

    def text(self) -> str:
        """The functions, the model's last: `model(x, ...)` takes the input and, unless the
        framework closes over them, all parameters; it returns a tuple of the outputs."""
        layers = len(self.case.layers)
        segments = self.case.plan.cut(layers) if self.checkpointed else ()
        whole = self._whole_call() if self.checkpointed else ""
        lines = [whole] if whole else self._range(0, layers, segments)
        given = self.signature()
        outputs = "".join(f"{name_of(v)}, " for v in self.model.live[layers])
        if self._state:
            made = ", ".join(f"{m[1:]}: {m}.state" for m in self.modules())
            lines.insert(0, f"{self._state} = {{{made}}}")
            outputs += self._state
        self._functions.append(self._define(self.name, given, lines, f"({outputs.rstrip()})"))
        return "\n\n\n".join("\n".join(lines) for lines in self._functions) + "\n"

    def signature(self) -> list[str]:
        """The names of what the model takes."""
        return ["x", *self.framework.extras, *self._taken(range(len(self.case.layers)))]

    def arguments(self) -> list[str]:
        """The names of what a loss is a function of: the input, all parameters and, where modules
        are arguments, what else may change."""
        names = ["x", *self._names]
        if self.framework.modules_are_arguments:
            names += [*self.modules(), *self.framework.extras]
        return list(dict.fromkeys(names))

    def modules(self) -> dict[str, str]:
        """The names of the library's layers in the source, and the expressions that make them."""
        return {f"m{index}": self._module(index).made_for(operand) for index, operand in self.model.custom_operands}

    def _whole_call(self) -> str:
        """The line that has the framework cut a chain of layers, or nothing where it cannot."""
        plan, live = self.case.plan.sequential, self.model.live
        if plan is None or any(len(values) > 1 for values in live):
            return ""
        names = [f"{self._prefix()}layer_{index}" for index in range(len(self.case.layers))]
        call = self.framework.sequential_call(plan, names, self.case.options)
        for index, name in enumerate(names) if call else ():
            given, made = name_of(live[index][0]), name_of(live[index + 1][0])
            self._functions.append(self._define(name, [given], self._layer(index), made))
        return f"{name_of(live[-1][0])} = {call}" if call else ""

    def _define(self, name: str, given: Iterable[str], lines: list[str], returned: str) -> list[str]:
        body = [f"    {line}" for line in [*lines, f"return {returned}"]]
        return [f"def {name}({', '.join(given)}):", *body]

    def _taken(self, layers: Iterable[int]) -> list[str]:
        """The parameters that a function of these layers takes, each once."""
        if self.framework.closes_over_parameters:
            return []
        used = []
        for layer in layers:
            used += [self._names[p] for p in self.model.layer_parameters[layer]]
            if self.framework.modules_are_arguments and layer in self._operands:
                used.append(f"m{layer}")
        return list(dict.fromkeys(used))

    def _range(self, begin: int, end: int, segments: Sequence[Segment]) -> list[str]:
        lines, layer = [], begin
        for segment in segments:
            for index in range(layer, segment.begin):
                lines += self._layer(index)
            lines += self._segment(segment)
            layer = segment.end
        for index in range(layer, end):
            lines += self._layer(index)
        return lines

    def _segment(self, segment: Segment) -> list[str]:
        """Defines the segment's function, and returns the lines that call it."""
        begin, end = segment.begin, segment.end
        inside = self._range(begin, end, segment.nested)
        name = f"{self._prefix()}segment_{begin}_{end}"
        while name in self._segments:
            name += "_"  # A nested segment may be as long as the one around it.
        self._segments.add(name)
        live = list(dict.fromkeys(name_of(v) for v in self.model.live[begin]))
        given = list(live)
        if not self.framework.nested_functions:
            given += [*self.framework.extras, *self._taken(range(begin, end))]
        # Values that are handed on come first, as their gradients do in a backward.
        made = sorted(dict.fromkeys(name_of(v) for v in self.model.live[end]), key=lambda n: n not in live)
        handed_on = self.framework.handed_on(segment, self.case.options)
        returned = [handed_on.format(x=n) if n in live else n for n in made]
        if self._state:
            given.append(self._state)
            returned.append(self._state)
            made.append(self._state)
        definition = self._defined(segment, name, given, inside, returned)
        call = self._called(segment, name, given, made)
        if self.framework.nested_functions:
            return [*definition, *call]
        self._functions.append(definition)
        return call

    def _defined(
        self, segment: Segment, name: str, given: list[str], inside: list[str], returned: list[str]
    ) -> list[str]:
        """The lines of a segment's function."""
        return self._define(name, given, inside, ", ".join(returned))

    def _called(self, segment: Segment, name: str, given: list[str], made: list[str]) -> list[str]:
        """The lines that call it, checkpointed."""
        call = self.framework.checkpoint_call(name, given, segment.choice, self.case.options)
        return [f"{', '.join(made)} = {call}"]

    def _prefix(self) -> str:
        return "" if self.name == "model" else f"{self.name}_"

    def _module(self, index: int) -> Module:
        declared = self.case.layers[index].layer
        found = self.framework.modules_by_declaration.get(declared)
        if found is None:
            raise Unsupported(f"layer {index}: no such layer is declared: {declared}")
        return found

    def _layer(self, index: int) -> list[str]:
        layer = self.case.layers[index]
        live = self.model.live[index]
        operands = [name_of(live[0]), *(name_of(v) for v in layer.operands)]
        outputs = [name_of((index, i)) for i in range(OUTPUTS.get(layer.kind, 1))]
        if self._state and layer.kind == "custom":
            outputs.append(self._state)
        expression = self._expression(index, layer, operands)
        if self.observed and not self.checkpointed and self.framework.within:
            expression = self.framework.within.format(layer=index, expression=expression)
        lines = [f"{', '.join(outputs)} = {expression}"]
        if self.observed:
            if self.framework.enter_line:
                lines.insert(0, self.framework.enter_line.format(layer=index))
            if self.framework.sees_draws and draws(layer, self.train):
                names = {"layer": index, "x": operands[0], "y": outputs[0]}
                lines.append(self.framework.drew_line.format_map(names))
            if self.framework.made_line:
                names = ", ".join(outputs)
                lines.append(self.framework.made_line.format(layer=index, outputs=names))
        return lines

    def _expression(self, index: int, layer: Layer, operands: list[str]) -> str:
        used = self.model.layer_parameters[index]
        names = {self.model.parameters[p].role: self._names[p] for p in used}
        if index in self.detached:
            names = {role: self.framework.detach.format(x=n) for role, n in names.items()}
        if layer.kind == "custom":
            weights = next(iter(names.values()), "[]")
            module = self.framework.bind.format(m=f"m{index}", w=weights)
            words = {"m": module, "x": operands[0], "LAYER": str(index)}
            return re.sub(r"\b(m|x|LAYER)\b", lambda w: words[w[0]], self._module(index).call)
        template = self.framework.kinds[layer.kind]
        text = template if isinstance(template, str) else template(layer, layer.trains(self.train))
        protocol = self.case.protocol
        if self.observed and protocol.inject == "op_exchanged" and protocol.inject_layer == index:
            other = self.framework.kinds["sigmoid" if layer.kind == "tanh" else "tanh"]
            text = f"{other} if exchanged({index}) else {text}"
        buffers = {b.role: f"{b.role}{index}" for b in self.model.buffers if b.layer == index}
        return text.format_map(
            {**_fields(layer), **names, **buffers, "x": operands[0], "y": operands[-1]}
            | {"layer": index, "axis": self.case.features_axis(index)}
        )


def _fields(layer: Layer) -> Mapping[str, object]:
    return {name: getattr(layer, name) for name in ("features", "kernel", "stride", "padding", "groups", "p")}


def evaluation(source: Source) -> Source:
    """The same model without a plan, in evaluation mode, unobserved."""
    return replace(source, checkpointed=False, train=False, observed=False)

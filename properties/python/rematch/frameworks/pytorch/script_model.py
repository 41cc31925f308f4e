"""The text of a model under its plan: layers, checkpointed functions, calls of checkpoint()."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from types import MappingProxyType

from torch.utils.checkpoint import checkpoint

from rematch.case import Segment, ValueRef
from rematch.frameworks.pytorch.layers import call, draws
from rematch.frameworks.pytorch.policy import kept_layers
from rematch.frameworks.pytorch.script_counts import layer_name
from rematch.frameworks.pytorch.script_custom import CustomText
from rematch.frameworks.pytorch.script_layers import Layers, Style
from rematch.layers import OUTPUTS
from rematch.protocol import Request, Unsupported

OPS = {
    "embedding": ("embedding",),
    "linear": ("addmm", "mm"),
    "conv2d": ("convolution",),
    "dropout": ("native_dropout",),
    "relu": ("relu",),
    "gelu": ("gelu",),
    "silu": ("silu",),
    "tanh": ("tanh",),
    "sigmoid": ("sigmoid",),
    "softmax": ("_softmax",),
    "add": ("add.Tensor",),
    "mul": ("mul.Tensor",),
    "concat": ("cat",),
    "layer_norm": ("native_layer_norm",),
    "group_norm": ("native_group_norm",),
    "batch_norm": ("native_batch_norm",),
}
"""Operators of ATen that compute an op of a policy, where that is one operator."""
WIDTH = 99
INDENT = "    "


def indented(lines: list[str]) -> list[str]:
    return [INDENT + line if line else "" for line in lines]


class ModelText:
    """The model of a script; Script says what is done with it."""

    def __init__(
        self,
        request: Request,
        style: Style,
        aspects: tuple[str, ...],
        own: str = "",
        customs: Mapping[int, CustomText] = MappingProxyType({}),
    ) -> None:
        """`own`: the lines that import the user's checkpoint(), if it is not PyTorch's. `customs`:
        the subject's own layers, by their numbers."""
        self._own = own
        self._request, self._style, self._aspects = request, style, aspects
        self._case, self._live = request.case, request.model.live
        self._protocol = self._case.protocol
        self._plan = self._case.plan
        self._layers = self._made_layers(customs)
        self._end = len(self._case.layers)
        self._skips = {value for boundary in self._live for value in boundary[1:]}
        self._fails = "no error" in aspects or "left behind" in aspects
        self._trial = self._protocol.inject != "none" and not self._fails
        wanted = style.input_grad and not self._case.takes_tokens
        self._input_grad = self._protocol.input_requires_grad or wanted
        # By the names of the further model inputs, in the step that makes them.
        some = self._protocol.further_inputs_with_grad
        self._further = {f"in{k + 1}": k < some for k in range(self._case.further_inputs)}
        p = self._protocol
        self._many = not self._fails and (
            p.steps * p.microbatches > 1 or self._trial or "reevaluation" in aspects or bool(style.compiled)
        )
        self._segments = self._plan.cut(self._end)
        self._calls = _count(self._segments)
        self._functions: dict[int, str] = {}
        self._counted = self._protocol.inject in ("op_exchanged", "forward_throws", "recomputation_throws")

    def _made_layers(self, customs: Mapping[int, CustomText]) -> Layers:
        return Layers(self._request, self._style, customs)

    @property
    def parameters(self) -> list[str]:
        """Names of the script's variables that hold the parameters."""
        return self._layers.parameters

    def _name(self, value: ValueRef, inside: bool) -> str:
        layer, output = value
        if layer < 0 and output > 0:
            return f"u{output}"
        if layer < 0:
            return "x0" if value in self._skips and (inside or self._hands_on_input()) else "x"
        if value in self._skips:
            return f"{'ab'[output]}{layer}"
        return "x" if inside else "y"

    def _hands_on_input(self) -> bool:
        """Whether a name for the input is given to what a checkpoint returns."""
        return any((-1, 0) in self._live[s.end] for s in self._segments)

    def _names(self, boundary: int, inside: bool) -> list[str]:
        return [self._name(v, inside) for v in self._live[boundary]]

    def _operands_and_targets(self, index: int, inside: bool) -> tuple[list[str], list[str]]:
        """The names of what a layer takes, and of what it returns."""
        layer, after = self._case.layers[index], self._live[index + 1]
        x = [self._name((index - 1, 0), inside), *(self._name(v, inside) for v in layer.operands)]
        count = OUTPUTS.get(layer.kind, 1)
        return x, [self._name((index, k), inside) if (index, k) in after else "_" for k in range(count)]

    def _layer(self, index: int, inside: bool) -> list[str]:
        layer = self._case.layers[index]
        x, targets = self._operands_and_targets(index, inside)
        lines = []
        made = self._layers.expression(index, x)
        injected = self._counted and index == self._protocol.inject_layer
        if injected:
            lines, made = self._injected(layer.kind, made, x[0])
        kept = self._kept_by_flag(index)
        if made != ", ".join(targets):
            run = f"{', '.join(targets)} = {made}"
            lines += ["with keep():", INDENT + run] if kept else [run]
        name = layer_name(layer.kind, index)
        if "runs" in self._aspects:
            lines.insert(0, f'runs["{name}"] += 1')
        if "requires grad" in self._aspects:
            lines += [
                f'flags.setdefault("{name}, output {k}", {target}.requires_grad)'
                for k, target in enumerate(targets)
                if target != "_"
            ]
        if "draws" in self._aspects and draws(layer, self._protocol.train):
            lines.append(f"drawn[{f'{layer.kind} {index}'!r}].append({targets[0]}.detach())")
        return lines

    def _injected(self, kind: str, made: str, x: str) -> tuple[list[str], str]:
        state = "change" if self._fails else "trial"
        count = ["nonlocal entered", "entered += 1"]
        if self._protocol.inject == "op_exchanged":
            other = "sigmoid" if kind == "tanh" else "tanh"
            return count, f"torch.{other}({x}) if {state} and entered > 1 else {made}"
        when = "entered == 1" if self._protocol.inject == "forward_throws" else "entered > 1"
        return [*count, f"if {state} and {when}:", f'{INDENT}raise RuntimeError("fails")'], made

    def _range(self, begin: int, end: int, segments: tuple[Segment, ...], inside: bool) -> list[str]:
        lines, layer = [], begin
        for segment in segments:
            for index in range(layer, segment.begin):
                lines += self._layer(index, inside)
            lines += self._checkpoint(segment, inside)
            layer = segment.end
        for index in range(layer, end):
            lines += self._layer(index, inside)
        return lines

    def _given_names(self) -> list[str]:
        """Lines that name the model inputs as the model's layers know them."""
        names = self._names(0, False)
        lines = [f"{names[0]} = x"] if names[0] != "x" else []
        return lines + [f"u{k} = {name}" for k, name in enumerate(self._further, 1)]

    def _model(self) -> list[str]:
        lines = self._given_names()
        lines += self._range(0, self._end, self._segments, inside=False)
        if self._plan.offload:
            scope = "with save_on_cpu() if checkpointed else nullcontext():"
            lines = [scope, *indented(lines or ["pass"])]
        return lines

    def _outputs(self) -> list[str]:
        return self._names(self._end, False)

    def _checkpoint(self, segment: Segment, inside: bool) -> list[str]:
        function = self._functions[id(segment)]
        given = self._given(segment, self._names(segment.begin, inside))
        options = self._options(segment)
        returned = self._names(segment.end, inside)
        target = ", ".join(returned)
        after = []
        if segment.choice.nested_outputs:
            after = [f"{target} = {_taken('returned', len(returned))}"]
            target = "returned"
        if self._calls > 1:
            called = call(*self._called("call", segment, function), *given, *options)
            return [f"{target} = {called}", *after]
        through = call(*self._called("checkpoint", segment, function), *given, *options)
        before = []
        if segment.choice.keep and self._style.whole_ops:
            before = [f"contexts = partial(create_selective_checkpoint_contexts, {self._listed(segment)})"]
        plain = call(*self._called("", segment, function), *given)
        return [*before, *self._either(target, through, plain), *after]

    def _called(self, by: str, segment: Segment, function: str) -> list[str]:
        """The call that runs a segment `by` a function, "" for none, and its first arguments."""
        return [by, function] if by else [function]

    def _given(self, segment: Segment, names: list[str]) -> list[str]:
        """The arguments by which a segment is handed what has these names."""
        match segment.choice.arguments:
            case "dictionary":
                return [_dictionary(names)]
            case "emptied":
                return [f"[{', '.join(names)}]"]
            case "keywords":
                named = self._names(segment.begin, inside=True)
                by_keyword = [f"{n}={value}" for n, value in zip(named, names, strict=True)]
                by_position = names[:1] if len(names) > 1 else []
                by_keyword = by_keyword[len(by_position) :]
                if self._calls > 1:
                    by_keyword = [f"keywords=dict({', '.join(by_keyword)})"]
                return [*by_position, *by_keyword]
        return names

    def _either(self, target: str, through: str, plain: str) -> list[str]:
        line = f"{target} = {through} if checkpointed else {plain}"
        if len(line) <= WIDTH - 8:
            return [line]
        checkpointed = [f"{target} = {through}"]
        if len(checkpointed[0]) > WIDTH - 12:
            name, _, arguments = through.partition("(")
            checkpointed = [f"{target} = {name}(", INDENT + arguments[:-1], ")"]
        return ["if checkpointed:", *indented(checkpointed), "else:", f"{INDENT}{target} = {plain}"]

    def _options(self, segment: Segment) -> list[str]:
        choice = segment.choice
        options = [f"use_reentrant={choice.reentrant}"]
        if not choice.preserve_rng:
            options.append("preserve_rng_state=False")
        if choice.reentrant:
            return options
        if choice.determinism == "none":
            options.append('determinism_check="none"')
        if not choice.early_stop:
            if self._own and "**options" not in self._own:
                raise Unsupported("a function of a user's need not know the option early_stop")
            if not self._own and "early_stop" not in signature(checkpoint).parameters:
                raise Unsupported("checkpoint() of this PyTorch has no option early_stop")
            options.append("early_stop=False")
        if choice.keep:
            self._kept_layers(segment)
            options.append("context_fn=contexts")
            if (
                not self._own
                and self._plan.offload
                and "respect_saved_tensors_hooks" in signature(checkpoint).parameters
            ):
                options.append("respect_saved_tensors_hooks=True")
        return options

    def _listed(self, segment: Segment) -> str:
        names = []
        for keep in segment.choice.keep:
            for op in OPS.get(keep.op, ()):
                names.append(f"torch.ops.aten.{op}{'' if '.' in op else '.default'}")
        return f"[{', '.join(names)}]"

    def _keeps_all(self) -> bool:
        """Whether policies keep whatever their segments compute."""
        pending = list(self._segments)
        while pending:
            segment = pending.pop()
            pending.extend(segment.nested)
            if segment.choice.keep and len(self._kept_layers(segment)) < segment.end - segment.begin:
                return False
        return True

    def _kept_layers(self, segment: Segment) -> frozenset[int]:
        return kept_layers(self._case, segment.choice, segment.begin, segment.end)

    def _kept_by_flag(self, index: int) -> bool:
        """Whether the policy keeps what this layer computes, and knows by a flag."""
        pending = [] if self._style.whole_ops or self._keeps_all() else list(self._segments)
        while pending:
            segment = pending.pop()
            pending.extend(segment.nested)
            if segment.choice.reentrant or not segment.begin <= index < segment.end:
                continue
            if segment.choice.keep and index in self._kept_layers(segment):
                return True
        return False

    def _definitions(self) -> list[str]:
        """The functions that are checkpointed, the inner ones first."""
        names = ["block"] if self._calls == 1 else [f"block{i}" for i in range(self._calls)]
        lines: list[str] = []

        def define(segment: Segment) -> None:
            for nested in segment.nested:
                define(nested)
            name = self._functions[id(segment)] = names.pop(0)
            body = self._range(segment.begin, segment.end, segment.nested, inside=True)
            inputs = self._names(segment.begin, True)
            given = ", ".join(inputs)
            if segment.choice.arguments == "dictionary":
                body.insert(0, f"{given} = {_taken('given', len(inputs))}")
                given = "given"
            if segment.choice.arguments == "emptied":
                body[:0] = [f"{name} = given.pop(0)" for name in inputs]
                given = "given"
            returned = self._names(segment.end, True)
            nested = segment.choice.nested_outputs
            body.append(f"return {_dictionary(returned) if nested else ', '.join(returned)}")
            made = body[-1].removeprefix("return ") + " = "
            if len(body) > 1 and body[-2].startswith(made):
                body[-2:] = ["return " + body[-2].removeprefix(made)]
            body = _nonlocal_first(body)
            lines.extend(["", f"def {name}({given}):", *indented(body)])

        for segment in self._segments:
            define(segment)
        return [*lines, ""] if lines else lines


def _dictionary(names: list[str]) -> str:
    return f'{{"first": {names[0]}, "rest": [{", ".join(names[1:])}]}}'


def _taken(dictionary: str, count: int) -> str:
    """So many values of a dictionary."""
    first = f'{dictionary}["first"]'
    return first if count == 1 else f'{first}, *{dictionary}["rest"]'


def _count(segments: tuple[Segment, ...]) -> int:
    return sum(1 + _count(segment.nested) for segment in segments)


def _nonlocal_first(body: list[str]) -> list[str]:
    first = [line for line in body if line.startswith("nonlocal ")]
    return [*dict.fromkeys(first), *(line for line in body if line not in first)]

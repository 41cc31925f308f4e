"""The model of a case as the source code of PyTorch: one function for both runs, which know `checkpointed`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from torch.utils.checkpoint import checkpoint

from rematch.frameworks.pytorch.arguments import DECORATOR, FORM, keywords_of
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.functions import FUNCTIONS
from rematch.frameworks.pytorch.layers import KINDS, call, expression
from rematch.frameworks.pytorch.operators import policy_of, text_of
from rematch.frameworks.pytorch.policy import kept_layers
from rematch.subjects.case import Layer, Segment
from rematch.subjects.description import Description
from rematch.subjects.protocol import Unsupported
from rematch.subjects.source import Source, name_of


class Text(Description):
    """PyTorch as scripts write it. `own`: the lines that import the user's checkpoint(). `kept`: the operators
    of which a policy keeps results."""

    helpers = FUNCTIONS
    kinds = KINDS
    losses = {"mse": "F.mse_loss({y}, {target})", "cross_entropy": "F.cross_entropy({y}, {target})"}
    closes_over_parameters = True
    made_line = "made({layer}, {outputs})"
    detach = "({x} if checkpointed else {x}.detach())"

    def __init__(self, name: str, own: str, modules: Sequence[CustomLayer], kept: Iterable[Any] = ()) -> None:
        self.name, self.own, self.modules, self.kept = name, own, modules, kept
        super().__init__()


@dataclass
class TorchSource(Source):
    """`unit`: how the first segments are called where each is a module of its own: "checkpoint within" that, or
    "checkpoint around"; "": they are none. `layer_units`: layers that are. `split`: modules that compute layers."""

    unit: str = ""
    layer_units: frozenset[int] = frozenset()
    split: dict[int, str] = field(default_factory=dict)

    def _prefix(self) -> str:
        return ""

    def signature(self) -> list[str]:
        return ["x", *(f"x{k + 1}" for k in range(self.case.further_inputs))]

    def _layer(self, index: int) -> list[str]:
        lines = super()._layer(index)
        if index not in self.layer_units:
            return lines
        given, made = (", ".join(dict.fromkeys(map(name_of, self.model.live[at]))) for at in (index, index + 1))
        return [*self._define(f"run{index}", [given], lines, made), f"{made} = layer{index}(run{index}, {given})"]

    def _expression(self, index: int, layer: Layer, operands: list[str]) -> str:
        if layer.kind == "custom":
            return super()._expression(index, layer, operands)
        if module := self.split.get(index):
            constants = f"{{n: p.detach() for n, p in {module}.named_parameters()}}"
            frozen = f" if checkpointed else functional_call({module}, {constants}, {operands[0]})"
            return f"{module}({operands[0]})" + (frozen if index in self.detached else "")
        weights = [self._names[p] for p in self.model.layer_parameters[index]]
        if index in self.detached:
            weights = [self.framework.detach.format(x=name) for name in weights]
        x, wide = operands[0], operands[0] + (".float()" if self.case.protocol.autocast != "off" else "")
        words = {
            **{name: x for name in ("x", "alias", "dense")},
            **{"y": operands[-1], "both": ", ".join(operands), "contiguous": ""},
            **{"wide": wide, "dense_wide": wide, "axis": str(self.case.features_axis(index))},
            "weights": ", ".join(weights),
            "width": f"{weights[0]}.shape" if weights else "",
            "buffers": ", ".join(f"{b.role}_{index}" for b in self.model.buffers if b.layer == index),
            "flat": x if self.case.rank_of(index) == 2 else f"{x}.flatten(1)",
            "generator": f"generators[{layer.stream - 1}]",
        }
        kept = {keep.op for choice in self.case.choices() for keep in choice.keep}
        text = expression(layer, self.train, words, "dropout" in kept)
        protocol = self.case.protocol
        if self.observed and protocol.inject == "op_exchanged" and protocol.inject_layer == index:
            other = "sigmoid" if layer.kind == "tanh" else "tanh"
            return f"torch.{other}({x}) if runs[{index}] > 1 else {text}"
        return text

    def _defined(
        self, segment: Segment, name: str, given: list[str], inside: list[str], returned: list[str]
    ) -> list[str]:
        form, names = segment.choice.arguments, given
        if form == "dictionary":
            given, inside = ["given"], [_taken(names, "given"), *inside]
        if form == "emptied":
            given, inside = ["given"], [*(f"{name} = given.pop(0)" for name in names), *inside]
        made = _dictionary(returned) if segment.choice.nested_outputs else ", ".join(returned)
        return self._define(name, given, inside, made)

    def _called(self, segment: Segment, name: str, given: list[str], made: list[str]) -> list[str]:
        form = segment.choice.arguments
        if form == "dictionary":
            given = [_dictionary(given)]
        if form == "emptied":
            given = [f"[{', '.join(given)}]"]
        if form == "keywords":
            first = int(len(given) > 1)
            given = [*given[:first], *(f"{value}={value}" for value in given[first:])]
        options, segments = self._options(segment), self.case.plan.segments if self.unit else ()
        units = [f"segment{k}" for k, unit in enumerate(segments) if unit is segment]
        around = bool(units) and self.unit == "checkpoint around"
        run = f"partial({units[0]}, {name})" if around else name
        if self.case.options.get(FORM) == DECORATOR:
            checkpointed = [call(call("checkpoint", *options), run), *given]
        else:
            checkpointed = ["checkpoint", run, *given, *options]
        through, plain = call(*([] if around else units), *checkpointed), call(*units, name, *given)
        nested = segment.choice.nested_outputs
        target = "returned" if nested else ", ".join(made)
        lines = [f"{target} = {through} if checkpointed else {plain}"]
        return [*lines, _taken(made, "returned")] if nested else lines

    def _options(self, segment: Segment) -> list[str]:
        choice, own = segment.choice, self.framework.own
        known = {} if own else signature(checkpoint).parameters
        keywords = keywords_of(choice)
        if "early_stop" in keywords and "early_stop" not in known:
            raise Unsupported("checkpoint() need not have the option early_stop")
        options = [f"{name}={json.dumps(v) if isinstance(v, str) else v}" for name, v in keywords.items()]
        if choice.reentrant:
            return options
        if policy := policy_of(self.case, segment):
            options.append(f"context_fn={text_of(policy, self.framework.kept)[1]}")
        if choice.keep:
            layers = sorted(kept_layers(self.case, choice, segment.begin, segment.end))
            options.append(f"context_fn=keeping({', '.join(map(str, layers))})")
            if self.case.plan.offload and "respect_saved_tensors_hooks" in known:
                options.append("respect_saved_tensors_hooks=True")
        return options


def _dictionary(names: list[str]) -> str:
    return f'{{"first": {names[0]}, "rest": [{", ".join(names[1:])}]}}'


def _taken(names: list[str], dictionary: str) -> str:
    """The line that takes the values of these names out of a dictionary."""
    rest = f', *{dictionary}["rest"]' if len(names) > 1 else ""
    return f'{", ".join(names)} = {dictionary}["first"]{rest}'

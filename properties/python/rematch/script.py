"""Scripts of frameworks: the plain and the checkpointed model as they are run, and a comparison of both."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rematch.description import Description
from rematch.export import FEW, LAWS, Attempt, Finding, Search, last_line
from rematch.promises import script_of
from rematch.protocol import Request, Unsupported
from rematch.source import ANNOTATION, Source, parameter_names

MOST = 2048
"""So many numbers of the case are written out where others do not show the finding."""
_GRADIENTS = "gradient of "
_SHOWN = {
    "error": ("error",),
    "runs": ("runs of ",),
    "gradients": (_GRADIENTS,),
    "input gradient": (_GRADIENTS + "x",),
    "outputs": ("output ", "loss"),
    "draws": ("random state",),
    "random state": ("random state",),
    "buffers": ("state of ",),
    "parameters": (_GRADIENTS,),
    "reevaluation": (_GRADIENTS, "state of "),
}
"""How what results of a run are called begins, by what the runs are compared by."""

_TAIL = """\
def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


def outcome(model):
    try:
        return run(model)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


plain_results, results = outcome(plain), outcome(checkpointed)
different = []
for name in ["error"] if "error" in plain_results | results else plain_results:
    expected, got = plain_results.get(name), results.get(name)
    print(f"{name}\\n  plain         {expected}\\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
"""


@dataclass(frozen=True)
class Style:
    """How a script is written: with the case's own numbers (`exact`) or such as are drawn with
    `seed`; so many forwards one after the other; with counts of what runs."""

    seed: int = 0
    exact: bool = False
    forwards: int = 1
    counts: bool = False


def export(framework: Description, request: Request, finding: str) -> str:
    """Raises Unsupported with a sentence where no script shows the finding."""
    found = Finding.read(finding)
    if found.law == "promises":
        return script_of(framework, finding)
    if not found.law:
        return next(_scripts(framework, request, found))
    compared = [a for a in LAWS.get(found.law, ("", ()))[1] if a in _SHOWN]
    if not compared or "no error" in LAWS[found.law][1]:
        raise Unsupported("what the law compares does not show in the results of two runs")
    return Search().first(
        Attempt(script, partial(_shows, found, aspect))
        for aspect in compared
        for script in _scripts(framework, request, found)
    )


def _scripts(framework: Description, request: Request, found: Finding) -> Iterator[str]:
    for style in _styles(request, found.law):
        with suppress(OverflowError):
            yield _Script(framework, request, style).text(found)


def _styles(request: Request, law: str) -> Iterator[Style]:
    style = Style(counts=law == "executions")
    protocol = request.case.protocol
    for forwards in (1, 2) if protocol.steps * protocol.microbatches > 1 else (1,):
        for seed in range(3):
            yield replace(style, seed=seed, forwards=forwards)
        yield replace(style, exact=True, forwards=forwards)


def _shows(found: Finding, aspect: str, status: int, out: str) -> bool:
    """Whether what a script printed shows the finding by that aspect."""
    if aspect == "error":
        # The error must be of the kind that was found, or none.
        kind = "None" if found.got == "no error" else found.got.partition(":")[0]
        return f"\n  checkpointed  {kind}" in out and "DIFFERENT: error" in out
    if aspect == "runs":
        layer = re.search(r"layer (\d+)", found.at)
        name = f"runs of layer {layer[1]}" if layer else "runs of "
        return f"{name}\n" in out and f"  checkpointed  {found.got}\n" in out
    last = last_line(out)
    names = last.removeprefix("DIFFERENT: ").split(", ") if last.startswith("DIFF") else []
    return any(name.startswith(_SHOWN[aspect]) for name in names)


class _Script:
    def __init__(self, framework: Description, request: Request, style: Style) -> None:
        self._framework, self._request, self._style = framework, request, style
        case, model = request.case, request.model
        train = case.protocol.train
        self._plain, self._checkpointed = (
            Source(
                framework,
                case,
                model,
                checkpointed,
                train,
                style.counts,
                request.detached_layers if not checkpointed else frozenset(),
                name,
            )
            for name, checkpointed in (("plain", False), ("checkpointed", True))
        )
        self._names = parameter_names(case, model)
        self._modules = self._plain.modules()
        self._buffers = {
            f"{info.role}{info.layer}": array
            for info, array in zip(model.buffers, request.arrays.buffers, strict=True)
            if f"m{info.layer}" not in self._modules
        }
        self._random = np.random.default_rng(style.seed)

    def text(self, found: Finding) -> str:
        framework = self._framework
        arrays = self._request.arrays
        data = [f"x = {self._array(arrays.inputs[0])}"]
        data.append(f"target = {self._array(arrays.targets[0], free=False)}")
        for name, info, array in zip(self._names, self._request.model.parameters, arrays.parameters, strict=True):
            if f"m{info.layer}" not in self._modules:
                data.append(f"{name} = {self._parameter(array, info.frozen)}")
        body = [self._plain.text(), "\n\n", self._checkpointed.text(), "\n\n", self._run()]
        # Scripts count, and look at nothing else.
        body = [re.sub(r"^ +(drew|made)\(.*\n", "", part, flags=re.MULTILINE) for part in body]
        if self._style.counts:
            body.insert(0, "runs = Counter()\n\n\ndef enter(layer):\n    runs[layer] += 1\n\n\n")
        rest = "\n".join(data) + "\n\n\n" + "".join(body) + "\n\n" + self._tail()
        helpers = self._helpers(rest)
        imports = ["import sys", *(["from collections import Counter"] if self._style.counts else [])]
        lines = [f"{found.comment()}# {framework.name}; run: python this_file.py", *imports, ""]
        return "\n".join([*lines, framework.imports, "import numpy as np", "", "", helpers + rest])

    def _helpers(self, text: str) -> str:
        """The source of those that the text uses, and of those that these use."""
        found: list[str] = []
        for helper in reversed(self._framework.helpers):
            if re.search(rf"\b{helper.__name__}\(", text):
                source = ANNOTATION.sub("", inspect.getsource(helper).rstrip())
                found.insert(0, source)
                text += source
        return "".join(f"{source}\n\n\n" for source in found)

    def _array(self, array: np.ndarray, free: bool = True) -> str:
        return self._framework.script_array.format(array=self._written(array, free))

    def _written(self, array: np.ndarray, free: bool = True) -> str:
        dtype = f"np.{array.dtype}"
        # Not every integer is a token or a class.
        free = free and array.dtype.kind == "f"
        if self._style.exact or not free or array.size <= FEW:
            if array.size > MOST:
                raise OverflowError
            if free and not self._style.exact:
                array = np.round(self._random.standard_normal(array.shape), 1)
            return f"np.array({np.round(array, 9).tolist()}, {dtype})"
        seed = int(self._random.integers(100))
        drawn = f"np.random.default_rng({seed}).standard_normal({array.shape})"
        return f"{drawn}.astype({dtype})"

    def _parameter(self, array: np.ndarray, frozen: bool) -> str:
        form = self._framework.script_parameter or self._framework.script_array
        return form.format(array=self._written(array), frozen=frozen)

    def _run(self) -> str:
        framework, model = self._framework, self._request.model
        lines = ["def run(model):"]
        for name, expression in self._modules.items():
            lines += [f"    global {name}", f"    {framework.seed(int(name[1:]))}"]
            lines.append(f"    {name} = {expression}")
            layer = self._request.case.layers[int(name[1:])]
            train = layer.trains(self._request.case.protocol.train)
            if "set_mode" in framework.names:
                lines.append(f"    set_mode({name}, {train})")
        for info, name in zip(model.parameters, self._names, strict=True):
            if f"m{info.layer}" in self._modules:
                lines.append(f"    {name} = parameters_of(m{info.layer})")
        for name, array in self._buffers.items():
            lines += [f"    global {name}", f"    {name} = {self._array(array, free=False)}"]
        lines += ["    runs.clear()"] if self._style.counts else []
        lines += [f"    {framework.seed(0)}", *(f"    {line}" for line in framework.script_lines(self._request)), ""]
        names, taken = self._plain.arguments(), self._plain.signature()
        if framework.closes_over_parameters:
            names, taken = ["x", "*_"], ["x"]
        loss = framework.losses[self._request.case.protocol.loss]
        lines += [
            f"    def objective({', '.join(names)}):",
            f"        outputs = model({', '.join(taken)})",
            "        y = outputs[0]",
            f"        return {loss}, outputs",
            "",
        ]
        trained = [0] if self._request.case.protocol.input_requires_grad else []
        trained += [i + 1 for i, p in enumerate(model.parameters) if not p.frozen]
        backwards = self._request.case.protocol.backwards
        more = f", {backwards}" if backwards > 1 else ""
        arguments = ", ".join(self._plain.arguments())
        call = f"{framework.differentiator}(objective, [{arguments}], {trained}{more})"
        lines += [f"    loss, outputs, gradients = {call}"] * self._style.forwards
        lines += self._results(trained)
        return "\n".join(lines) + "\n"

    def _results(self, trained: list[int]) -> list[str]:
        framework = self._framework
        lines = ['    results = {"loss": loss}']
        if framework.state and self._modules:
            lines.append(f"    *outputs, {framework.state} = outputs")
            lines += [f"    {m}.state = {framework.state}[{m[1:]}]" for m in self._modules]
        lines.append('    results |= {f"output {i}": y for i, y in enumerate(outputs)}')
        for at, argument in enumerate(trained):
            name = ["x", *self._names][argument]
            lines.append(f'    results["{_GRADIENTS}{name}"] = gradients[{at}]')
        for name in self._modules:
            if "state_of" in framework.names:
                lines.append(f'    results["state of {name}"] = state_of({name})')
        lines += [f'    results["state of {name}"] = {name}' for name in self._buffers]
        if framework.script_random_state:
            lines.append(f'    results["random state"] = {framework.script_random_state}')
        if self._style.counts:
            lines.append('    results |= {f"runs of layer {i}": n for i, n in runs.items()}')
        lines.append("    return {name: numbers(value) for name, value in results.items()}")
        return lines

    def _tail(self) -> str:
        return _TAIL

"""Scripts of frameworks: the plain and the checkpointed model as they are run, and a comparison of both."""

import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rematch.subjects.description import Description
from rematch.subjects.export import FEW, LAWS, Attempt, Finding, Search, last_line
from rematch.subjects.promises import script_of
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.source import ANNOTATION, Source, parameter_names, trained_arguments

MOST = 2048
"""How many numbers of the case are written out where others do not show the finding."""
_GRADIENTS = "gradient of "
_SHOWN = {
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

_NAMES = 'names = [name for name in expected | got if name.startswith("error")] or got\n'

_ONE = """\
expected, got = {expected}, run({checkpointed})
different = repr(expected) != repr(got)
print(f"{name}\\n  expected      {{str(expected)[:999]}}\\n  checkpointed  {{str(got)[:999]}}")
print("DIFFERENT: {name}" if different else "same")
sys.exit(1 if different else 0)
"""
"""The comparison of one result."""

COUNTED = ("runs", "hooks", "requires grad", "saved bytes")
"""Aspects of which a finding says what is right."""

_NUMBERS = """\
def numbers(value):
    if isinstance(value, (list, tuple)):
        value = np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value).tolist()


"""

_OUTCOME = """\
def outcome({run}):
    try:
        return run({run})
    except Exception as error:
        return {{"error": f"{{type(error).__name__}}: {{error}}"}}


"""

_COMPARISON = """\
expected, got = {outcome}({plain}), {outcome}({checkpointed})
{promised}{names}different = [name for name in {compared} if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{{name}}\\n  expected      {{str(expected.get(name))[:999]}}")
    print(f"  checkpointed  {{str(got.get(name))[:999]}}")
print("DIFFERENT: " + ", ".join(different) if different else {same})
sys.exit(1 if different else 0)
"""


@dataclass(frozen=True)
class Style:
    """How a script is written: with the case's own numbers (`exact`) or such as are drawn with
    `seed`; so many forwards one after the other; with an input that requires a gradient; with `only` one result."""

    seed: int = 0
    exact: bool = False
    forwards: int = 1
    input_grad: bool = False
    only: str = ""


def export(framework: Description, request: Request, finding: str) -> str:
    """Raises Unsupported with a sentence where no script shows the finding."""
    found = Finding.read(finding)
    if found.law == "promises":
        return script_of(framework, finding)
    if not found.law:
        return next(_scripts(framework, request, found, "")).text()
    compared = [a for a in LAWS.get(found.law, ()) if a == "error" or a in _SHOWN and (a != "runs" or runs_of(found))]
    if not compared:
        raise Unsupported("what the law compares does not show in the results of two runs")
    return Search().first(
        Attempt(script.text(), partial(shows, found, aspect, _SHOWN.get(aspect, ())), script.short)
        for aspect in compared
        for script in _scripts(framework, request, found, aspect)
    )


def _scripts(framework: Description, request: Request, found: Finding, aspect: str) -> "Iterator[Script]":
    protocol = request.case.protocol
    for forwards in (1, 2) if protocol.steps * protocol.microbatches > 1 else (1,):
        for style in (*(Style(seed) for seed in range(3)), Style(exact=True)):
            with suppress(OverflowError):
                yield Script(framework, request, replace(style, forwards=forwards), found, aspect)


def shows(found: Finding, aspect: str, names: tuple[str, ...], status: int, out: str) -> bool:
    """Whether what a script printed shows the finding by that aspect: in results whose names begin so."""
    last = last_line(out)
    shown = {"requires grad": "True", "requires no grad": "False"}.get(found.got, found.got)
    if status != 1 or not last.startswith("DIFFERENT: "):
        return False
    if aspect == "error":
        # The error must be of the kind that was found, or none.
        kind = "None" if found.got == "no error" else found.got.partition(":")[0]
        return f"\n  checkpointed  {kind}" in out and "DIFFERENT: error" in out
    if "DIFFERENT: error" in last or (aspect in COUNTED and f"\n  checkpointed  {shown}\n" not in out):
        return False
    return any(name.startswith(names) for name in last.removeprefix("DIFFERENT: ").split(", "))


def imports_of(text: str, imports: Iterable[str]) -> list[str]:
    """The lines that import a name that the text uses, and those that import nothing."""
    lines = list(imports)
    text = "\n".join([text, *(line for line in lines if "import " not in line)])

    def used(line: str) -> bool:
        names = line.partition("import ")[2].rpartition(" as ")[2].split(", ")
        return any(re.search(rf"(?<![\w.]){name.partition('.')[0]}\b", text) for name in names)

    return [line for line in lines if "import " not in line or used(line)]


def runs_of(found: Finding) -> dict[str, str]:
    """How often the layer of a finding is expected to run, by the name of that result."""
    layer, expected = re.search(r"layer (\d+)", found.at), found.parts.get("expected", "")
    return {f"runs of layer {layer[1]}": expected} if layer and expected.isdigit() else {}


class Script:
    """The text of a script: imports, helpers, the model, a run of it, and a comparison of two runs."""

    which = "model", "plain", "checkpointed"
    """What a run is given, by its name, and in both runs."""
    numbers = _NUMBERS
    """The function that makes lists of numbers of results."""

    def __init__(self, framework: Description, request: Request, style: Style, found: Finding, aspect: str) -> None:
        self._framework, self._request, self._style = framework, request, style
        self._found, self._aspect = found, aspect
        self._counts, self._absent = aspect == "runs", found.law == "absent-gradients"
        self._more: tuple[str, ...] = ()
        self._random = np.random.default_rng(style.seed)

    def short(self, name: str) -> str:
        """Returns the script that compares the result `name` alone; "" if there is none."""
        is_other = self._found.law == "parameter-gradients" and name in ("x.grad", f"{_GRADIENTS}x")
        if self._outcome() or is_other:
            return ""
        style = replace(self._style, only=name)
        return type(self)(self._framework, self._request, style, self._found, self._aspect, *self._more).text()

    def text(self) -> str:
        outcome, only = self._outcome(), self._style.only
        promised = self._promised()
        run, plain, checkpointed = self.which
        body = self._body() + "\n\n" + outcome
        if only:
            expected = promised.get(only, f"run({plain})")
            name = f"{only} is not None" if self._absent else only
            body += _ONE.format(name=name, expected=expected, checkpointed=checkpointed)
        else:
            body += _COMPARISON.format(
                outcome="outcome" if outcome else "run",
                plain=plain,
                checkpointed=checkpointed,
                promised="".join(f"expected[{name!r}] = {value}\n" for name, value in promised.items()),
                names=_NAMES if outcome else "",
                compared="names" if outcome else "got",
                same='"same" if names is got else f"both fail: {got}"' if outcome else '"same"',
            )
        helpers = self._helpers(body) + (self.numbers if "numbers(" in body else "")
        lines = [f"{self._found.comment()}# {self._framework.name}; run: python this_file.py"]
        return "\n".join([*lines, *self._imports(helpers + body), "", "", helpers + body])

    def _outcome(self) -> str:
        """The function that runs a model and makes a result of its error, where one may be the finding."""
        return _OUTCOME.format(run=self.which[0]) if self._aspect in ("", "error") else ""

    def _promised(self) -> dict[str, str]:
        """Results that are expected where a plain run does not show them, as expressions."""
        return runs_of(self._found) if self._counts else {}

    def _imports(self, text: str) -> list[str]:
        lines = ["import sys", *(["from collections import Counter"] if self._counts else []), ""]
        return [*lines, *imports_of(text, [*self._framework.imports.splitlines(), "import numpy as np"])]

    def _helpers(self, text: str) -> str:
        """The source of those that the text uses, and of those that these use."""
        found: list[str] = []
        for helper in reversed(self._framework.helpers):
            if re.search(rf"(?<![\w.]){helper.__name__}\b[(.]", text):
                source = ANNOTATION.sub("", inspect.getsource(helper).rstrip())
                found.insert(0, source)
                text += source
        return "".join(f"{source}\n\n\n" for source in found)

    def _body(self) -> str:
        """The data, both models, and the function `run`."""
        framework, request = self._framework, self._request
        case, model, arrays = request.case, request.model, request.arrays
        self._plain, marked = (
            Source(
                framework,
                case,
                model,
                checkpointed,
                case.protocol.train,
                self._counts,
                request.detached_layers if not checkpointed else frozenset(),
                name,
            )
            for name, checkpointed in (("plain", False), ("checkpointed", True))
        )
        self._names = parameter_names(case, model)
        self._modules = self._plain.modules()
        self._buffers = {
            f"{info.role}{info.layer}": array
            for info, array in zip(model.buffers, arrays.buffers, strict=True)
            if f"m{info.layer}" not in self._modules
        }
        data = [f"x = {self._array(arrays.inputs[0])}"]
        data.append(f"target = {self._array(arrays.targets[0], free=False)}")
        for name, info, array in zip(self._names, model.parameters, arrays.parameters, strict=True):
            if f"m{info.layer}" not in self._modules:
                data.append(f"{name} = {self._parameter(array, info.frozen)}")
        body = [self._plain.text(), marked.text(), self._run()]
        if self._counts:
            body.insert(0, "runs = Counter()\n\n\ndef enter(layer):\n    runs[layer] += 1\n")
        # Scripts count, and look at nothing else.
        text = re.sub(r"^ +(drew|made)\(.*\n", "", "\n\n".join(body), flags=re.MULTILINE)
        return "\n".join(data) + "\n\n\n" + text

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
        lines += ["    runs.clear()"] if self._counts else []
        lines += [f"    {framework.seed(0)}", *(f"    {line}" for line in framework.script_lines(self._request)), ""]
        names, taken = self._plain.arguments(), self._plain.signature()
        if framework.closes_over_parameters:
            names, taken = ["x", "*_"], ["x"]
        loss = framework.losses[self._request.case.protocol.loss]
        trained = trained_arguments(self._request.case, model)
        backwards = self._request.case.protocol.backwards
        more = f", {backwards}" if backwards > 1 else ""
        given = self._plain.arguments()
        by = {f"{_GRADIENTS}{['x', *self._names][i]}": i for i in trained}
        at = by.get(self._style.only)
        lines.append(f"    def objective({', '.join(names)}):")
        alone = (
            framework.script_gradient and framework.differentiator == "differentiate" and at is not None and not more
        )
        if alone and (at == 0 or f"m{model.parameters[at - 1].layer}" not in self._modules):
            lines += [f"        y = model({', '.join(taken)})[0]", f"        return {loss}", ""]
            gradient = framework.script_gradient.format(arguments=", ".join(given), name=given[at], at=at)
            *before, last = gradient.splitlines() * self._style.forwards
            lines += [f"    {line}" for line in [*before, f"return {self._only(last)}"]]
            return "\n".join(lines) + "\n"
        lines += [f"        outputs = model({', '.join(taken)})", "        y = outputs[0]"]
        lines += [f"        return {loss}, outputs", ""]
        call = f"{framework.differentiator}(objective, [{', '.join(given)}], {trained}{more})"
        lines += [f"    loss, outputs, gradients = {call}"] * self._style.forwards
        if framework.state and self._modules:
            lines.append(f"    *outputs, {framework.state} = outputs")
            lines += [f"    {m}.state = {framework.state}[{m[1:]}]" for m in self._modules]
        results = self._results(list(by))
        if self._style.only:
            lines.append(f"    return {self._only(results[self._style.only])}")
        else:
            lines.append("    results = {")
            lines += [f'        "{name}": {value},' for name, value in results.items()]
            lines += ["    }", "    return {name: numbers(value) for name, value in results.items()}"]
        return "\n".join(lines) + "\n"

    def _only(self, value: str) -> str:
        """What a run returns if it has one result."""
        if self._absent:
            return f"{value} is not None"
        # Values of modules are lists of arrays.
        return f"numbers({value})" if self._modules or value.startswith("[") else f"np.array({value}).tolist()"

    def _results(self, gradients: list[str]) -> dict[str, str]:
        framework = self._framework
        found = {"loss": "loss"}
        found |= {f"output {i}": f"outputs[{i}]" for i in range(len(self._request.model.live[-1]))}
        found |= {name: f"gradients[{i}]" for i, name in enumerate(gradients)}
        if "state_of" in framework.names:
            found |= {f"state of {name}": f"state_of({name})" for name in self._modules}
        found |= {f"state of {name}": name for name in self._buffers}
        if framework.script_random_state:
            found["random state"] = framework.script_random_state
        return found | {name: f"runs[{name.removeprefix('runs of layer ')}]" for name in self._promised()}

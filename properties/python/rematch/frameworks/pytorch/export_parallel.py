"""Answers `export` requests of what runs on several ranks, as data_parallel.py runs it: with one script, the case to the
bit, if it shows the finding when it is run by itself."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.export import plain_script, refuse, repeatable, search_of_torch
from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.ranks_script import RanksScript, SplitScript
from rematch.frameworks.pytorch.script_steps import indented
from rematch.frameworks.pytorch.setup import Setup, layers_with_own
from rematch.frameworks.pytorch.source import Text, TorchSource
from rematch.subjects.export import LAWS, Attempt, Finding
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.script import Style

_OF_RANKS = {
    "parameter_gradient": "gradients",
    "parameter": "parameters",
    "output": "outputs",
    "loss": "outputs",
    "input_gradient": "input gradient",
    "random state": "random state",
    "rank 0": "error",
}
"""Results that a script compares to show that ranks differ in this."""

_HELPERS = """\
class Call(nn.Module):  # has parameters, and runs what it is given
    def forward(self, function, *values, **keywords):
        return function(*values, **keywords)


"""

_ROWS = """\
def rows(batch):  # the rows of this rank
    return batch.tensor_split({shares})[dist.get_rank(){parts}].clone()


"""


class ParallelScript(RanksScript):
    """Each rank has its rows of a batch."""

    mesh_of_rows = "mesh"

    def __init__(
        self, text: Text, request: Request, style: Style, found: Finding, aspect: str, *, setup: Setup
    ) -> None:
        self._sharded = setup.kind != "ddp"
        self._even = request.case.input[0] % setup.shares == 0
        if request.case.protocol.auxiliary_losses and not self._even:
            raise Unsupported("no script weighs several losses by rows that ranks share unevenly")
        super().__init__(text, request, style, found, aspect, setup=setup)
        # One forward is written like several.
        self._many, self._where = True, "step {step}, microbatch {i}: "
        if request.detached_layers and (self._sharded or self._customs):
            raise Unsupported("no script on ranks makes constants of what a segment freezes")
        if self._sharded and aspect == "reevaluation":
            raise Unsupported("no script evaluates what is sharded")

    @property
    def _units(self) -> dict[str, range]:
        """The layers that run in each unit, outer units first."""
        if not self._sharded:
            return {}
        segments = enumerate(self._case.plan.segments if self._setup.units != "layers" else ())
        layers = layers_with_own(self._request.model) if self._setup.units != "segments" else ()
        units = {f"segment{k}": range(segment.begin, segment.end) for k, segment in segments}
        return units | {f"layer{layer}": range(layer, layer + 1) for layer in layers}

    def _place_of(self, layers: list[int]) -> str:
        """The innermost module that has all these layers, or the root: that of what they use. A sharded parameter is
        another tensor whenever its module runs."""
        found = [unit for unit, its in self._units.items() if layers and set(layers) <= set(its)]
        return found[-1] if found else "model" if self._sharded else "net"

    def _source(self) -> TorchSource:
        source = super()._source()
        if not self._sharded:
            return source
        used = self._request.model.layer_parameters
        for index, name in enumerate(source._names):
            place = self._place_of([layer for layer, its in enumerate(used) if index in its])
            source._names[index] = f"{place}.{name}"
        source.unit = self._setup.mode if self._setup.units != "layers" else ""
        source.layer_units = frozenset(its.start for unit, its in self._units.items() if unit.startswith("layer"))
        return source

    def _data(self) -> list[str]:
        lines, around = ["model = Call()" if self._sharded else "net = Call()"], dict[str, range]()
        for unit, its in self._units.items():
            place = next((outer for outer, of in around.items() if its.start in of), "model")
            lines.append(f"{unit} = {place}.{unit} = Call()")
            around |= {unit: its} if unit.startswith("segment") else {}
        return [*lines, *super()._data()]

    def _parameter_line(self, index: int, array: np.ndarray, grad: bool) -> str:
        name = self.parameters[index]
        made = call("nn.Parameter", self._tensor(array), "" if grad else "requires_grad=False")
        return f"{name} = {made}" if self._sharded else f"net.{name} = {name} = {made}"

    def _made_modules(self) -> list[str]:
        places = [f"{self._place_of([int(name[1:])])}.{name} = {name}" for name in self._customs]
        return [*super()._made_modules(), *places]

    def _ready(self) -> list[str]:
        # DistributedDataParallel takes all that a module returns for part of a loss.
        lines = ["rest = []", "", "def first(*given):", "    rest[:] = forward(*given)", "    return rest.pop(0)", ""]
        setup = self._setup
        if self._sharded:
            lines += [*self._mesh_lines(), f"units = ({', '.join([*reversed(self._units), 'model'])},)"]
            low = ""
            if setup.low:
                lines.append("low = torch.bfloat16")
                low = "mp_policy=MixedPrecisionPolicy(low, reduce_dtype=low, output_dtype=torch.float32)"
            again = tuple(not setup.stays(number) for number in reversed(range(len(self._units) + 1)))
            if setup.reshard in ("default", "to two ranks"):
                two = "" if setup.reshard == "default" else "reshard_after_forward=2"
                shard = call("fully_shard", "unit", f"mesh={self.mesh_of_rows}", two, low)
                lines += ["for unit in units:", f"    {shard}"]
            else:
                shard = call("fully_shard", "unit", f"mesh={self.mesh_of_rows}", "reshard_after_forward=again", low)
                lines += [f"for unit, again in zip(units, {again}):", f"    {shard}"]
            lines += self._prefetched()
        else:
            mode = "" if setup.mode == "default" else f"{setup.mode}=True"
            # The size is so small that each parameter has a bucket of its own.
            size = "" if setup.buckets else "bucket_cap_mb=1e-6"
            lines.append(f"model = {call('DistributedDataParallel', 'net', mode, size)}")
            if setup.hook != "none":
                lines.append(f"model.register_comm_hook(None, {setup.hook}_hook)")
        return [*lines, *super()._ready()]

    def _mesh_lines(self) -> list[str]:
        return [f'mesh = init_device_mesh("cpu", ({self._setup.ranks},))']

    def _prefetched(self) -> list[str]:
        """Tells each unit which one is next in one of the passes."""
        if self._setup.prefetch == "implicit" or not self._units:
            return []
        order = self._setup.order({"model": range(len(self._case.layers)), **self._units})
        line = f"unit.set_modules_to_{self._setup.prefetch}_prefetch([following])"
        return [f"for unit, following in pairwise(({', '.join(order)})):", f"    {line}"]

    def _forward_call(self) -> str:
        return f"{call('model', 'first', *self._given)}, *rest"

    def _own_rows(self, batch: str) -> str:
        return super()._own_rows(batch) if self._setup.whole else f"rows({batch})"

    def _target(self) -> str:
        return super()._target() if self._setup.whole else "rows(targets[i])"

    def _loss(self) -> str:
        # The mean over ranks is that over rows.
        shares, count = self._setup.shares, self._case.input[0]
        return super()._loss() if self._even else f"{super()._loss()} * (len(x) * {shares} / {count})"

    def _synced(self, last: str) -> list[str]:
        waits = self._setup.no_sync and self._protocol.microbatches > 1
        return [f"model.set_requires_gradient_sync({last})"] if waits else []

    def _resharded(self) -> list[str]:
        """Shards what a forward without a backward left whole."""
        return ["for unit in units:", "    unit.reshard()"]

    def _in_turn(self, forward: list[str], backward: list[str], step: list[str]) -> list[str]:
        p = self._protocol
        if not p.forwards_first:
            return super()._in_turn(forward, backward, step)
        last = f"i % {p.microbatches} == 0"
        before = [*self._synced(last), f"model.set_is_last_backward({last})"]
        return super()._in_turn(forward, [*before, *backward], [*step, *self._resharded()])

    def _microbatch(self, lines: list[str]) -> list[str]:
        count = self._protocol.microbatches
        last = f"i % {count} == {count - 1}"
        if self._sharded:
            return [*self._resharded(), *self._synced(last), *lines]
        if not self._synced(last):
            return lines
        # A static graph is learned from a backward that reduces.
        learns = "i == 0 or " if self._setup.mode == "static_graph" else ""
        return [f"with nullcontext() if {learns}{last} else model.no_sync():", *indented(lines)]

    def _needs(self, text: str) -> str:
        parts = f" // {self._setup.parts}" if self._setup.parts > 1 else ""
        rows = "" if self._setup.whole else _ROWS.format(shares=self._setup.shares, parts=parts)
        return _HELPERS + rows + super()._needs(text)

    @property
    def alike(self) -> str:
        ends = tuple(f": {name}{end}" for name in self.parameters for end in (".grad", ""))
        return f"name.endswith({ends}) and "


class ShardedSplitScript(SplitScript, ParallelScript):
    """Neighbours have the same rows, and split layers."""

    mesh_of_layers, mesh_of_rows = 'mesh["layers"]', 'mesh["rows"]'

    def _mesh_lines(self) -> list[str]:
        return []

    def _mesh_of_all(self) -> str:
        parts = self._setup.parts
        return f'init_device_mesh("cpu", ({self._setup.ranks // parts}, {parts}), mesh_dim_names=("rows", "layers"))'

    def _made_modules(self) -> list[str]:
        named = self._modules().items()
        return [*super()._made_modules(), *(f"{self._place_of([layer])}.{name} = {name}" for layer, name in named)]


def export_parallel(request: Request, text: str, layers: Mapping[str, CustomLayer], setup: Setup) -> str:
    """The script. `setup`: how the plain run was run in the end. Raises Unsupported with a sentence
    where there is none."""
    found = Finding.read(text)
    search = search_of_torch()
    framework = Text(f"torch {torch.__version__} on {setup.ranks} ranks", "", list(layers.values()))
    script_of = {"tp": SplitScript, "fsdp2_tp": ShardedSplitScript}.get(setup.kind, ParallelScript)
    write: Callable[..., RanksScript] = partial(script_of, framework, request, setup=setup)
    if not found.law:
        return plain_script(write, found)
    refuse(request, found)
    try:
        script = write(Style(exact=True), found, _aspect_of(found))
        return repeatable(request, search.first([Attempt(script.text(), partial(_shows, found, script))]), search)
    except OverflowError:
        raise Unsupported("the case has too many numbers to be written down") from None


def _aspect_of(found: Finding) -> str:
    kind, _, message = found.got.partition(": ")
    if kind != "RanksDiffer":
        return next(aspect for aspect in LAWS[found.law] if aspect != "runs")
    for quantity, aspect in _OF_RANKS.items():
        if re.match(rf"{quantity}\b", message):
            return aspect
    what = message.partition(":")[0]
    raise Unsupported(f"what ranks differ in does not show in their results: {what}")


def _shows(found: Finding, script: RanksScript, status: int, out: str) -> bool:
    """Whether what a script printed is the finding, not something else."""
    last: Any = out.rstrip().rpartition("\n")[2]
    if status != 1 or not last.startswith("DIFFERENT"):
        return False
    kind, _, message = found.got.partition(": ")
    failed = "error of rank" in last
    if found.law != "errors":
        return not failed
    if kind == "Hang":
        # In a script a rank that fails ends, and no other waits for it.
        told = [text for name, text in found.parts.items() if re.match(r"rank \d+$", name)]
        errors = [text for text in told if re.match(r"\w+: ", text)]
        return any(text[:60] in out for text in errors) or "no answer within" in out
    if kind != "RanksDiffer":
        return failed and message[:30] in out
    if number := re.match(r"parameter(?:_gradient)? (\d+)", message):
        end = ".grad" if message.startswith("parameter_gradient") else ""
        return f"{script.parameters[int(number[1])]}{end} differs between ranks" in last
    if state := re.match(r"random state of (rank \d+)", message):
        return "random state" in last and state[1] in last and not failed
    if re.match(r"(output|loss|input_gradient) \d+", message):
        return "differs between ranks" in last and not failed
    told = re.match(r"rank 0: (.*); rank \d+: (.*)", message, re.DOTALL)
    errors = [text for text in told.groups() if text != "no error"] if told else []
    return failed and bool(errors) and all(e[:30] in out for e in errors)

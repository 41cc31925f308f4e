"""The parts of a model whose layers are split among ranks, and what they send: tensor parallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from rematch.case import Case, Model
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.setup import Setup
from rematch.protocol import Request

_POINTWISE = {"relu", "gelu", "silu", "tanh", "sigmoid"}
"""Layers that may run on the shards of a value."""


@dataclass(frozen=True)
class SplitUnit:
    """Layers of which the first one takes a whole value, and the last one gives one back."""

    layers: range
    styles: Mapping[int, str]
    """How parallelize_module() splits layers of it, as expressions."""
    sends: Mapping[str, int]
    """The elements of its collectives, as UnitReading in properties/record/record.h has them."""


def _rows(case: Case, custom: Mapping[str, CustomLayer]) -> list[int]:
    """How many rows of features each layer reads; 0: not known."""
    count, batch, found = prod(case.input if case.takes_tokens else case.input[:-1]), case.input[0], []
    for index, layer in enumerate(case.layers):
        rank = case.rank_of(index)
        if layer.kind != "embedding" and rank != 3:
            count = batch if rank == 2 else 0
        found.append(count)
        if layer.kind == "kv_cache":
            count += batch * layer.kept
        if layer.kind == "custom" and not _keeps_rows(custom[layer.layer]):
            count = 0
    return found


def _keeps_rows(layer: CustomLayer) -> bool:
    before, _, after = layer.shapes.partition("->")
    return before.split()[:-1] == after.split()[:-1]


def _widths(request: Request) -> dict[int, tuple[int, int]]:
    """The features that each linear layer and embedding reads and makes; an embedding has a row for each word."""
    found = {}
    for index, layer in enumerate(request.case.layers):
        if layer.kind in ("linear", "embedding"):
            first, second = request.arrays.parameters[request.model.layer_parameters[index][0]].shape
            found[index] = (second, first) if layer.kind == "linear" else (first, second)
    return found


def units_of(request: Request, custom: Mapping[str, CustomLayer], setup: Setup) -> list[SplitUnit]:
    """The units of a case."""
    case, model, widths = request.case, request.model, _widths(request)
    rows = _rows(case, custom)
    owners = [index if layer.tied_to < 0 else layer.tied_to for index, layer in enumerate(case.layers)]
    # Optimizers fail where a rank has no part.
    can = [i for i, width in widths.items() if rows[i] and min(width) >= setup.ranks and not _is_written(case, i)]
    # A weight is split in one way for all layers that use it.
    able = {owner for owner in can if all(index in can for index, its in enumerate(owners) if its == owner)}
    columns: dict[int, bool] = {}
    units: list[SplitUnit] = []
    for index in can:
        owner = owners[index]
        if owner not in able or (units and index in units[-1].layers):
            continue
        last = _row_of_pair(case, model, setup, index) if owners.count(owner) == 1 else -1
        if last >= 0 and owners.count(owners[last]) == 1 and rows[last] and not _is_written(case, last):
            sends = {"reduces": rows[last] * widths[last][1], "reduces_back": rows[index] * widths[index][0]}
            shards = "use_local_output=False" if setup.shards else ""
            styles = {index: f"ColwiseParallel({shards})", last: "RowwiseParallel()"}
            units.append(SplitUnit(range(index, last + 1), styles, sends))
            continue
        # The columns of a linear layer's weight are the rows of an embedding's.
        if owner not in columns:
            columns[owner] = setup.mode in ("pairs", "columns") or (setup.mode == "in turns" and len(columns) % 2 == 0)
        turned = case.layers[owner].kind == "embedding" and case.layers[index].kind == "linear"
        column = columns[owner] != turned
        reads, makes = widths[index]
        sends = {"gathers" if column else "reduces": rows[index] * (_padded(makes, setup.ranks) if column else makes)}
        if case.layers[index].kind == "linear":
            back = rows[index] * (reads if column else _padded(reads, setup.ranks))
            sends["reduces_back" if column else "gathers_back"] = back
        whole = "ColwiseParallel(output_layouts={})" if column else "RowwiseParallel(input_layouts={})"
        units.append(SplitUnit(range(index, index + 1), {index: whole.format("Replicate()")}, sends))
    return units


def module_of(request: Request, layer: int) -> str:
    """The expression that makes a layer that is split, without its parameters."""
    used = request.model.layer_parameters[layer]
    first, second = request.arrays.parameters[used[0]].shape
    if request.case.layers[layer].kind == "embedding":
        return f'nn.Embedding({first}, {second}, device="meta")'
    return call("nn.Linear", f"{second}, {first}", "" if len(used) > 1 else "bias=False", 'device="meta"')


def _is_written(case: Case, index: int) -> bool:
    """Whether a later layer writes to what the layer makes. PyTorch forbids that to what parallelize_module() makes
    of a DTensor."""
    for layer in case.layers[index + 1 :]:
        if layer.kind != "flatten":
            return layer.in_place
    return False


def _padded(extent: int, ranks: int) -> int:
    return -(-extent // ranks) * ranks


def _row_of_pair(case: Case, model: Model, setup: Setup, first: int) -> int:
    """The linear layer that adds up what `first` splits, -1 if there is none."""
    layer = case.layers[first]
    # Ranks take their plain shards for equally large ones.
    even = setup.shards or layer.features % setup.ranks == 0
    if setup.mode != "pairs" or layer.kind != "linear" or not even:
        return -1
    for index in range(first + 1, len(case.layers)):
        # Only the next layer reads what was made last.
        if (index - 1, 0) in model.live[index + 1] or case.layers[index].operands:
            return -1
        if case.layers[index].kind == "linear":
            return index
        if case.layers[index].kind not in _POINTWISE:
            return -1
    return -1

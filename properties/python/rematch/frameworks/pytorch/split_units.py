"""The layers of a model that are split among ranks: tensor parallel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.setup import Setup
from rematch.subjects.case import Case
from rematch.subjects.protocol import Request

_POINTWISE = {"relu", "gelu", "silu", "tanh", "sigmoid"}
"""Layers that may run on the shards of a value."""
NORMS = {"layer_norm": "LayerNorm", "rms_norm": "RMSNorm"}
"""Layers that normalize each row by itself, which may run on some rows of a value."""
_BY_ROWS = {*_POINTWISE, "softmax"}
"""Other layers that may run on some rows of a value."""
_SPLITS = {"pairs": ("features",), "sequence": ("sequence", "features")}
"""What a rank may have of values between layers: some of their features, or some rows; both take turns."""


@dataclass(frozen=True)
class SplitUnit:
    layer: int
    styles: Sequence[str]
    """How parallelize_module() splits it, as expressions, one after the other."""


@dataclass(frozen=True)
class _Extents:
    """Sequences, rows in each, and the features of a row that a layer reads and makes. Without sequences, the batch is
    one."""

    sequences: int
    rows: int
    reads: int
    makes: int


def units_of(request: Request, custom: Mapping[str, CustomLayer], setup: Setup) -> list[SplitUnit]:
    return list(_Splitting(request, custom, setup).units())


def module_of(request: Request, layer: int) -> str:
    """The expression that makes a layer that is split, without its parameters."""
    used = request.model.layer_parameters[layer]
    extents, kind = request.arrays.parameters[used[0]].shape, request.case.layers[layer].kind
    if kind in NORMS:
        return call(f"nn.{NORMS[kind]}", str(extents[0]), "eps=1e-5", 'device="meta"')
    if kind == "embedding":
        return f'nn.Embedding({extents[0]}, {extents[1]}, device="meta")'
    return call("nn.Linear", f"{extents[1]}, {extents[0]}", "" if len(used) > 1 else "bias=False", 'device="meta"')


def _extents_of(request: Request, custom: Mapping[str, CustomLayer], setup: Setup) -> dict[int, _Extents]:
    """The extents, on the first rank, of layers that may be split, where they are known."""
    case, batch, found = request.case, -(-request.case.input[0] // setup.shares), {}
    rows = batch * prod(case.input[1:] if case.takes_tokens else case.input[1:-1])
    for index, layer in enumerate(case.layers):
        rank = case.rank_of(index)
        if layer.kind != "embedding" and rank != 3:
            rows = batch if rank == 2 else 0
        if rows and layer.kind in ("linear", "embedding", *NORMS):
            weight = request.arrays.parameters[request.model.layer_parameters[index][0]].shape
            # An embedding has a row for each word.
            reads, makes = weight if layer.kind == "embedding" else (weight[-1], weight[0])
            sequences = batch if case.rank_of(index + 1) == 3 else 1
            found[index] = _Extents(sequences, rows // sequences, reads, makes)
        if layer.kind == "kv_cache":
            rows += batch * layer.kept
        if layer.kind == "custom" and not _keeps_rows(custom[layer.layer]):
            rows = 0
    return found


def _keeps_rows(layer: CustomLayer) -> bool:
    before, _, after = layer.shapes.partition("->")
    return before.split()[:-1] == after.split()[:-1]


def _is_written(case: Case, index: int) -> bool:
    """Whether a later layer writes to what the layer makes. PyTorch forbids that to what parallelize_module() makes
    of a DTensor."""
    for layer in case.layers[index + 1 :]:
        if layer.kind != "flatten":
            return layer.in_place
    return False


class _Splitting:
    """Goes through the layers, and says of each value whether a rank has it "whole", or some "features" of it, or some
    rows of each "sequence"."""

    def __init__(self, request: Request, custom: Mapping[str, CustomLayer], setup: Setup) -> None:
        self._case, self._live, self._setup, self._ranks = request.case, request.model.live, setup, setup.parts
        self._splits = _SPLITS.get(setup.split, ())
        layers = self._case.layers
        self._extents = _extents_of(request, custom, setup)
        self._owners = [index if layer.tied_to < 0 else layer.tied_to for index, layer in enumerate(layers)]
        can = {index for index in self._extents if not _is_written(self._case, index)}
        self._norms = {i for i in can if layers[i].kind in NORMS and self._shares(i, "sequence")}
        # Optimizers fail where a rank has no part.
        can = {i for i in can if min(self._extents[i].reads, self._extents[i].makes) >= self._ranks}
        can = {i for i in can if layers[i].kind not in NORMS}
        # A weight is split in one way for all layers that use it.
        self._products = {i for i in can if all(user in can for user in self._users(i))}
        if setup.kind == "fsdp2_tp":
            self._products = {i for i in self._products if self._is_even(i)}
        self._columns: dict[int, bool] = {}

    def units(self) -> Iterator[SplitUnit]:
        before = "whole"
        for index, layer in enumerate(self._case.layers):
            # What begins between layers ends there.
            after = before if layer.kind in _BY_ROWS else "whole"
            if index in self._norms:
                after = "sequence" if self._ends(index, "sequence") else "whole"
                yield self._norm(index, before, after)
            elif index in self._products:
                after = self._after(index, before)
                yield self._product(index, before, after)
            before = after

    def _users(self, index: int) -> list[int]:
        """The layers that have the same weight."""
        return [user for user, owner in enumerate(self._owners) if owner == self._owners[index]]

    def _is_even(self, index: int) -> bool:
        """Whether all ranks have as much of a weight that no other layer has: what is sharded once more must be so."""
        its = self._extents[index]
        return its.reads % self._ranks == its.makes % self._ranks == 0 and len(self._users(index)) == 1

    def _after(self, index: int, before: str) -> str:
        """What a rank has of what a product makes."""
        alone = len(self._users(index)) == 1
        for after in self._splits:
            if after != before and alone and self._shares(index, after) and self._ends(index, after):
                return after
        return "whole"

    def _shares(self, index: int, split: str) -> bool:
        """Whether each rank has a part of what a layer makes."""
        its = self._extents[index]
        extent = its.rows if split == "sequence" else its.makes
        if split == "sequence" and its.sequences == 1 and self._case.input[0] % self._setup.shares:
            # Ranks with other rows have more of them.
            return False
        # Plain shards are taken for equally large ones.
        return split in self._splits and extent >= self._ranks and (self._setup.shards or extent % self._ranks == 0)

    def _ends(self, index: int, split: str) -> bool:
        """Whether a later layer takes what a layer makes as a shard, and only such as run on shards are between."""
        for after in range(index + 1, len(self._case.layers)):
            # Only the next layer reads what was made last.
            if (after - 1, 0) in self._live[after + 1] or self._case.layers[after].operands:
                return False
            if after in self._norms:
                return split == "sequence"
            if after in self._products:
                return len(self._users(after)) == 1
            if self._case.layers[after].kind not in (_BY_ROWS if split == "sequence" else _POINTWISE):
                return False
        return False

    def _norm(self, index: int, before: str, after: str) -> SplitUnit:
        place, styles = self._places(index)["sequence"], []
        if before == "whole":
            styles.append(f"PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts={place})")
        dim = self._case.rank_of(index) - 2
        local = "use_local_output=True" if after == "sequence" and not self._setup.shards else ""
        styles.append(call("SequenceParallel", f"sequence_dim={dim}" if dim != 1 else "", local))
        if after == "whole":
            styles.append(f"PrepareModuleOutput(output_layouts={place}, desired_output_layouts=Replicate())")
        return SplitUnit(index, styles)

    def _product(self, index: int, before: str, after: str) -> SplitUnit:
        """A linear layer or an embedding, split by columns, of which each rank makes some, or by rows."""
        column = "sequence" == before or "features" == after
        if before == after:
            column = self._is_by_columns(index)
        style, usual = (
            ("ColwiseParallel", ("whole", "features")) if column else ("RowwiseParallel", ("features", "whole"))
        )
        sides = zip(("input_layouts", "output_layouts"), (before, after), usual, strict=True)
        options = [f"{side}={self._places(index)[split]}" for side, split, other in sides if split != other]
        shards = "use_local_output=False" if after != "whole" and self._setup.shards else ""
        return SplitUnit(index, [call(style, *options, shards)])

    def _is_by_columns(self, index: int) -> bool:
        """Whether a product whose operand and output are whole is split by columns."""
        owner, mode = self._owners[index], self._setup.split
        columns = self._columns
        if owner not in columns:
            columns[owner] = len(columns) % 2 == 0 if mode == "in turns" else mode != "rows"
        # The columns of a linear layer's weight are the rows of an embedding's.
        turned = self._case.layers[owner].kind == "embedding" and self._case.layers[index].kind == "linear"
        return columns[owner] != turned

    def _places(self, index: int) -> dict[str, str]:
        """The placements of what a layer makes, as expressions."""
        dim = self._case.rank_of(index + 1) - 2
        return {"whole": "Replicate()", "features": "Shard(-1)", "sequence": f"Shard({dim})"}

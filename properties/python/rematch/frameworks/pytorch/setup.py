"""How a case is run on several ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from rematch.case import Case, Model
from rematch.protocol import Unsupported

MODES = {
    "ddp": ("default", "find_unused_parameters", "static_graph"),
    "fsdp2": ("checkpoint within", "checkpoint around"),
    "tp": ("pairs", "columns", "rows", "in turns", "sequence"),
}
_BOTH = {"ranks": ("2", "4"), "no_sync": ("no", "yes")}
OPTIONS = {
    "ddp": {"mode": MODES["ddp"], **_BOTH, "buckets": ("shared", "single")},
    "fsdp2": {
        "mode": MODES["fsdp2"],
        **_BOTH,
        "units": ("segments", "layers", "both"),
        "reshard": ("default", "always", "never", "in turns"),
        "precision": ("float32", "bfloat16"),
    },
    "tp": {"mode": MODES["tp"], "between": ("tensors", "shards")},
}
MODES["fsdp2_tp"] = MODES["fsdp2"]
OPTIONS["fsdp2_tp"] = {name: OPTIONS["fsdp2"][name] for name in ("mode", "no_sync", "units", "reshard")}
OPTIONS["fsdp2_tp"] |= {"split": MODES["tp"], "between": OPTIONS["tp"]["between"]}
SHARES = {"ddp": {"no_sync": 0.75}, "fsdp2": {"no_sync": 0.75}, "fsdp2_tp": {"no_sync": 0.75}, "tp": {}}


@dataclass(frozen=True)
class Setup:
    """How a case is run in parallel, which its options decide."""

    kind: str
    ranks: int
    mode: str
    no_sync: bool
    """Gradients are reduced in the last microbatch of a step only."""
    buckets: bool
    """DDP puts several parameters into a bucket."""
    units: str = "segments"
    """The parts of a model that fully_shard() makes units, beside the model itself."""
    reshard: str = "default"
    """Units that are sharded again after their forward."""
    low: bool = False
    """Parameters are gathered, and run, in bfloat16."""
    parts: int = 1
    """So many ranks have the same rows, and split layers. They are neighbours."""
    split: str = ""
    """How they do."""
    shards: bool = False
    """Between two layers that are split, values are DTensors, not what each rank has of them."""

    @property
    def shares(self) -> int:
        """The parts of a batch."""
        return self.ranks // self.parts

    def stays(self, unit: int) -> bool:
        """Whether a unit stays whole after its forward; the model is number 0."""
        return {"default": unit == 0, "never": True, "in turns": unit % 2 == 1}.get(self.reshard, False)


def layers_with_own(model: Model) -> list[int]:
    """Layers that have parameters for themselves."""
    used = model.layer_parameters
    uses = Counter(parameter for its in used for parameter in its)
    return [layer for layer, its in enumerate(used) if any(uses[parameter] == 1 for parameter in its)]


def setup_of(kind: str, case: Case) -> Setup:
    """Raises Unsupported for a batch that cannot be shared."""
    chosen = {name: values[0] for name, values in OPTIONS[kind].items()} | dict(case.options)
    splits = {"parts": 2, "shards": chosen.get("between") == "shards"}
    if kind == "tp":
        return Setup(kind, 2, chosen["mode"], False, False, split=chosen["mode"], **splits)
    rows = case.input[0]
    if rows < 2:
        raise Unsupported("a batch of one row: there is nothing to share")
    if kind == "fsdp2_tp":
        setup = Setup(kind, 4, chosen["mode"], chosen["no_sync"] == "yes", False, split=chosen["split"], **splits)
        return replace(setup, units=chosen["units"], reshard=chosen["reshard"])
    ranks = int(chosen["ranks"]) if rows >= 4 else 2
    reentrant = any(choice.variant == "reentrant" for choice in case.choices())
    if case.protocol.auxiliary_losses and reentrant:
        # A reentrant segment gives the other losses' outputs zeros for gradients, so that more is reduced at once.
        ranks = 2
    # Where in a bucket it lies decides in which order four gradients are added up.
    shared = ranks == 2 and chosen.get("buckets") == "shared"
    setup = Setup(kind, ranks, chosen["mode"], chosen["no_sync"] == "yes", shared)
    if kind == "ddp":
        return setup
    # Without a layer of the subject's own, the reference says what the numbers are, and knows of no such casts.
    low = chosen["precision"] == "bfloat16" and any(layer.kind == "custom" for layer in case.layers)
    # A layer that hands on what it is given hands on the cast, which needs no gradient where a reentrant forward casts.
    casts_within = chosen["mode"] == "checkpoint around" or chosen["units"] != "segments"
    low = low and not (reentrant and casts_within)
    return replace(setup, units=chosen["units"], reshard=chosen["reshard"], low=low)

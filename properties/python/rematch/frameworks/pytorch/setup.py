"""How a case is run on several ranks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from rematch.subjects.case import Case, Model

Key = TypeVar("Key")

MODES = {
    "ddp": ("default", "find_unused_parameters", "static_graph"),
    "fsdp2": ("checkpoint within", "checkpoint around"),
    "tp": ("pairs", "columns", "rows", "in turns", "sequence"),
}
_BOTH = {"ranks": ("2", "4"), "no_sync": ("no", "yes"), "rows": ("whole", "shared")}
OPTIONS = {
    "ddp": {
        "mode": MODES["ddp"],
        **_BOTH,
        "buckets": ("shared", "single"),
        "hook": ("none", "allreduce", "bf16_compress"),
    },
    "fsdp2": {
        "mode": MODES["fsdp2"],
        **_BOTH,
        "units": ("segments", "layers", "both"),
        "reshard": ("default", "always", "never", "in turns", "to two ranks"),
        "prefetch": ("implicit", "forward", "backward"),
        "precision": ("float32", "bfloat16"),
    },
    "tp": {"mode": MODES["tp"], "between": ("tensors", "shards")},
}
MODES["fsdp2_tp"] = MODES["fsdp2"]
OPTIONS["fsdp2_tp"] = {name: OPTIONS["fsdp2"][name] for name in ("mode", "no_sync", "rows", "units", "reshard")}
OPTIONS["fsdp2_tp"] |= {"split": MODES["tp"], "between": OPTIONS["tp"]["between"]}
_MORE_OFTEN = {"no_sync": 0.75, "rows": 0.75}
SHARES = {"ddp": _MORE_OFTEN | {"hook": 0.75}, "fsdp2": _MORE_OFTEN | {"prefetch": 0.3, "precision": 0.95}, "fsdp2_tp": _MORE_OFTEN, "tp": {}}
OF_THE_BATCH = {"kv_cache"}
"""Layers whose state has a part for each row of the whole batch."""


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
    prefetch: str = "implicit"
    """The pass in which each unit of fully_shard() is told to prefetch the one that is next."""
    whole: bool = False
    """Each rank has all rows of a batch."""
    hook: str = "none"
    """The communication hook of DDP."""
    parts: int = 1
    """How many ranks split layers between them. They are neighbours, and have the same rows."""
    split: str = ""
    """How they do."""
    shards: bool = False
    """Between two layers that are split, values are DTensors, not what each rank has of them."""

    @property
    def shares(self) -> int:
        """The parts of a batch."""
        return 1 if self.whole else self.ranks // self.parts

    @property
    def same(self) -> int:
        """How many ranks have the same rows. They are neighbours."""
        return self.ranks // self.shares

    def order(self, units: Mapping[Key, range]) -> list[Key]:
        """Units, which have these layers, in the order in which a pass that prefetches them enters each."""
        forward = self.prefetch == "forward"
        places = {unit: (its.start, -its.stop) if forward else (-its.stop, its.start) for unit, its in units.items()}
        return sorted(units, key=places.__getitem__)

    def stays(self, unit: int) -> bool:
        """Whether a unit stays whole after its forward; the model is number 0."""
        return {"default": unit == 0, "never": True, "in turns": unit % 2 == 1}.get(self.reshard, False)


def layers_with_own(model: Model) -> list[int]:
    """Layers that have parameters for themselves."""
    used = model.layer_parameters
    uses = Counter(parameter for its in used for parameter in its)
    return [layer for layer, its in enumerate(used) if any(uses[parameter] == 1 for parameter in its)]


def setup_of(kind: str, case: Case) -> Setup:
    chosen = {name: values[0] for name, values in OPTIONS[kind].items()} | dict(case.options)
    splits = {"parts": 2, "shards": chosen.get("between") == "shards"}
    if kind == "tp":
        return Setup(kind, 2, chosen["mode"], False, False, split=chosen["mode"], **splits)
    rows = case.input[0]
    own = any(layer.kind == "custom" for layer in case.layers)
    whole = chosen["rows"] == "whole" or rows < 2 or any(layer.kind in OF_THE_BATCH for layer in case.layers)
    if kind == "fsdp2_tp":
        setup = Setup(kind, 4, chosen["mode"], chosen["no_sync"] == "yes", False, split=chosen["split"], **splits)
        # To fewer ranks than share a batch, which are two, nothing can be resharded.
        reshard = "always" if chosen["reshard"] == "to two ranks" else chosen["reshard"]
        return replace(setup, units=chosen["units"], reshard=reshard, whole=whole)
    ranks = int(chosen["ranks"]) if whole or rows >= 4 else 2
    reentrant = any(choice.variant == "reentrant" for choice in case.choices())
    if case.protocol.auxiliary_losses and reentrant:
        # A reentrant segment gives the other losses' outputs zeros for gradients, so that more is reduced at once.
        ranks = 2
    # Where in a bucket it lies decides in which order four gradients are added up.
    shared = ranks == 2 and chosen.get("buckets") == "shared"
    setup = Setup(kind, ranks, chosen["mode"], chosen["no_sync"] == "yes", shared, whole=whole)
    # Without a layer of the subject's own, the reference says what the numbers are, and knows of no such casts.
    if kind == "ddp":
        casts = chosen["hook"] == "bf16_compress" and not own
        # A static graph is learned from the first backward, which a trial ends.
        learns = setup.mode == "static_graph" and case.protocol.inject != "none"
        return replace(setup, hook="none" if casts else chosen["hook"], mode="default" if learns else setup.mode)
    low = chosen["precision"] == "bfloat16" and own
    # A layer that hands on what it is given hands on the cast, which needs no gradient where a reentrant forward casts.
    casts_within = chosen["mode"] == "checkpoint around" or chosen["units"] != "segments"
    low = low and not (reentrant and casts_within)
    # Of two ranks, two are all.
    reshard = "always" if ranks == 2 and chosen["reshard"] == "to two ranks" else chosen["reshard"]
    return replace(setup, units=chosen["units"], reshard=reshard, low=low, prefetch=chosen["prefetch"])

"""PyTorch as a subject: torch.utils.checkpoint, or any function that is called like it."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch.utils import checkpoint as torch_checkpoint

from rematch.frameworks.pytorch import arguments, contract, library
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.layers import KINDS
from rematch.frameworks.pytorch.machine import instructions, unwritten
from rematch.frameworks.pytorch.memory import Memory
from rematch.frameworks.pytorch.model import HAS_DEFAULT, Checkpoint, TorchModel, Wiring, wire
from rematch.frameworks.pytorch.modules import MODULES
from rematch.frameworks.pytorch.operators import INFERENCE, POLICY, SCOPES, SHARE, VALUES
from rematch.frameworks.pytorch.run import TorchRun
from rematch.frameworks.pytorch.trial import put_back
from rematch.frameworks.pytorch.watch import Eye, Saves, Watch
from rematch.subjects.case import PROMISE, Case
from rematch.subjects.framework import Framework
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.records import Record

CANNOT = {
    "values_check": "its check of determinism compares shapes, dtypes and devices",
    "last_checkpointed": "checkpoint_sequential() never checkpoints the last segment",
    "operand_changed": "trials change inputs, weights and operators",
}
"""Features that PyTorch does not have, and why."""

CHEAP = (
    "outputs",
    "losses",
    "input_gradients",
    "parameter_gradients",
    "absent_gradients",
    "parameters",
    "buffers",
    "reevaluation",
    "grad_flags",
    "rng_state",
    "hooks",
    "injected_failures",
)
"""Observables that a run shows by itself."""

_BYTES = ("saved_bytes", "exact_bytes", "held_bytes", "held_layers", "released_bytes")
ALL = (*CHEAP, *_BYTES, "draws", "executions", "execution_order", "recomputed_values", "saved_tensors")
"""And what needs every operator and every saved tensor to be looked at. How often early stop lets a
layer run can be foreseen only from what layers save."""

OBSERVED = {"cheap": CHEAP, "saved": (*CHEAP, "saved_bytes"), "all": ALL}

VARIANTS = ("reentrant", "non_reentrant", "both")


class TorchSubject(Framework):
    """PyTorch on the CPU, eager, on one thread.

    `checkpoint` has the signature of torch.utils.checkpoint.checkpoint(); only options that differ
    from its defaults are passed. `variant` is one of VARIANTS: cases of the other one are refused.
    `observe` is "cheap", "saved" or "all". `imported`: the lines by which scripts import `checkpoint`
    under that name. `layers` are put among those that the harness knows. `lacks`: features that
    `checkpoint` does not have; `unseen`: observables that do not show what it does.
    """

    imports = "import torch\nfrom torch import nn\nimport torch.nn.functional as F"
    kinds = KINDS
    profile = "pytorch"
    takes_policies = True
    """Whether cases have policies by operators."""
    tries_promises = True
    """Whether runs try what the documentation of PyTorch's own checkpoint() promises."""

    def __init__(
        self,
        name: str = "",
        checkpoint: Checkpoint = torch_checkpoint.checkpoint,
        variant: str = "both",
        observe: str = "all",
        layers: Sequence[CustomLayer] = MODULES,
        imported: str = "",
        lacks: Collection[str] = (),
        unseen: Collection[str] = (),
    ) -> None:
        if variant not in VARIANTS:
            raise ValueError(f"variant: one of {', '.join(VARIANTS)} expected, got {variant!r}")
        if observe not in OBSERVED:
            raise ValueError(f"observe: one of {', '.join(OBSERVED)} expected, got {observe!r}")
        self.modules = layers
        super().__init__()
        self.name = name or f"torch {torch.__version__.split('+')[0]}"
        self.versions = {"torch": torch.__version__, "numpy": numpy.__version__} | instructions()
        self._own = checkpoint is torch_checkpoint.checkpoint
        if self._own and self.tries_promises:
            # With more of them a hunt would be slower by more than a twentieth.
            self._tries(contract.PROMISES, 0.4 if observe == "all" else 0.1)
        if self.takes_policies and variant != "reentrant" and "selective" not in lacks:
            self.options[POLICY], self.shares[POLICY] = VALUES, SHARE
        self.options[INFERENCE], self.shares[INFERENCE] = ["none", *SCOPES], 0.08
        if self._own and "function" in HAS_DEFAULT:
            self.options[arguments.FORM], self.shares[arguments.FORM] = ["call", arguments.DECORATOR], 0.25
        # A script has PyTorch's, or imports the user's.
        self.exports = self._own or bool(imported)
        self._imported = imported
        self._checkpoint = checkpoint
        self._variant = variant
        self._observe = observe
        self.lacks = set(lacks) | set(CANNOT)
        self._unseen = set(unseen)
        self._wired: tuple[Case, list[Wiring]] | None = None
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        # PyTorch would fill empty tensors alike in all runs.
        torch.utils.deterministic.fill_uninitialized_memory = not unwritten.fills
        # They are told by what the run shows.
        warnings.filterwarnings("ignore", module="torch")

    def _without(self, *options: str) -> None:
        for option in options:
            self.options.pop(option, None)
            self.shares.pop(option, None)

    def found(self) -> Mapping[str, Any]:
        return library.found()

    def implements(self, features: Sequence[str]) -> list[str]:
        lacking = set(self.lacks)
        if not self._own:
            # A checkpoint of a user's own takes a function and tensors, and may be a function of
            # autograd, which refuses backwards to some tensors.
            lacking |= {*arguments.FEATURES, "partial_backwards"}
        if self._variant != "both":
            other = "non_reentrant" if self._variant == "reentrant" else "reentrant"
            lacking |= {other, "mixed_variants"}
        return [feature for feature in features if feature not in lacking]

    def observes(self, observables: Sequence[str]) -> list[str]:
        seen = {
            *OBSERVED[self._observe],
            *(["promises"] if {PROMISE, POLICY, INFERENCE} & set(self.options) else []),
        } - self._unseen
        return [o for o in observables if o in seen]

    def export(self, request: Request, finding: str) -> str:
        from rematch.frameworks.pytorch.export import export

        kept = self._kept(request) if POLICY in request.case.options else ()
        return export(request, finding, self._imported, self.modules_by_declaration, kept=kept)

    def _kept(self, request: Request) -> set[Any]:
        """The operators of which policies keep results."""
        run = self.steps(replace(request, checkpointed=True), Record())
        with suppress(Exception):
            run.go()
        self.put_back()
        return run.watch.kept

    def steps(self, request: Request, record: Record) -> TorchRun:
        if self._wired is None or self._wired[0] is not request.case:
            self._wired = (request.case, wire(request.case, request.model))
        policies = request.checkpointed and any(c.keep for c in request.case.choices())
        if policies and request.case.plan.offload and self._observe == "all":
            raise Unsupported(
                "a policy within save_on_cpu(): what it keeps is hidden from hooks, or moved to "
                "the host with the rest, so its bytes cannot be told apart"
            )
        memory = Memory()
        watch = Saves(record, memory) if self._observe == "saved" else Watch(record)
        if self._observe == "all":
            # In plain runs as well: derivatives of some operators are computed otherwise within a mode.
            shown = any(c.keep for c in request.case.choices()) or POLICY in request.case.options
            watch = Eye(record, memory, request.checkpointed, request.layer_values, shown)
        model = self._model(request, self._wired[1], watch)
        memory.belongs_to_model(model.all_tensors())
        return TorchRun(request, model, record)

    def message(self, error: Exception) -> str:
        return str(error)

    def let_go(self) -> None:
        """Does nothing: PyTorch lets go of a run by itself."""

    def put_back(self) -> str:
        return put_back()

    def _model(self, request: Request, wirings: list[Wiring], watch: Watch) -> TorchModel:
        return TorchModel(request, wirings, watch, self._checkpoint, custom=self.modules_by_declaration)

    def broken(self, promise: str) -> str:
        return contract.broken(promise)
